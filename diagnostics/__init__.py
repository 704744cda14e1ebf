"""Mechanistic diagnostics for video multimodal large language models: the application.

`python -m diagnostics` lists what there is. `hooks` and `probes`, beside it, are useful alone.
"""
