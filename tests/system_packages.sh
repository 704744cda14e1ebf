#!/usr/bin/env bash
# Packages the system tests need beside Python's: npm carries the real Qwen3 tokenizer; Chromium opens the report's
# page, in which emoji need a font; a SLURM of one node.
set -euo pipefail
export PATH=$PATH:/usr/sbin
export DEBIAN_FRONTEND=noninteractive
has() { command -v "$1" >/dev/null; }
if ! has npm; then
    apt-get update -qq
    apt-get install -qq --yes --no-install-recommends npm
fi
if ! has chromium; then
    apt-get update -qq
    apt-get install -qq --yes --no-install-recommends chromium fonts-noto-color-emoji
fi
if ! { has slurmctld && has slurmd && has munged; }; then
    { apt-get update -qq && apt-get install -qq --yes --no-install-recommends slurm-wlm munge; } ||
        echo "SLURM cannot be installed: its tests are skipped." >&2
fi
