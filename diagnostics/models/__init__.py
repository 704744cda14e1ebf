"""Checkpoints: loading them, asking them, and the bundled tiny one."""
