"""Configuration groups: `exp`, `model`, `data`, `sampling`, `backend`, `hydra/launcher`."""
