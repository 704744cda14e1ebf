#!/usr/bin/env bash
# Packages the system tests need beside Python's: npm carries the real Qwen3 tokenizer; a SLURM of one node.
set -euo pipefail
export PATH=$PATH:/usr/sbin
wanted=()
command -v npm >/dev/null || wanted+=(npm)
command -v slurmctld >/dev/null && command -v slurmd >/dev/null || wanted+=(slurm-wlm)
command -v munged >/dev/null || wanted+=(munge)
if ((${#wanted[@]})); then
    apt-get update -qq
    apt-get install -qq --yes --no-install-recommends "${wanted[@]}"
fi
