#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What an installation without jinja2 and pycocotools must do: detect, run and profile; `report` says what is missing.
# Usage: slim.sh FOLDER       with the installation's `mpnet` first in PATH.
set -euo pipefail
folder=${1:?folder}
mkdir -p "$folder"
cd "$folder"
for module in jinja2 pycocotools; do
    if python -c "import $module" 2>/dev/null; then echo "slim: $module is installed here" >&2; exit 2; fi
done
python - <<'END'
from pathlib import Path
from mpnet.demo.project import write_project
write_project(Path("demo"), 4)
END
model=(--cfg demo/model/demo.cfg --weights demo/model/demo.weights)
mpnet detect "${model[@]}" demo/val/images > detected.txt
mpnet run demo/demo.yaml -q > run.txt
mpnet profile demo/model/demo.cfg -q -o table.json > profile.txt || [ $? -eq 1 ]    # 1: this machine is too busy for times
code=0
mpnet report demo/results/demo -o page.html 2> refused.txt || code=$?
[ $code -eq 2 ] && grep -q "pip install 'mpnet\[report\]'" refused.txt || { cat refused.txt >&2; exit 1; }
[ "$(wc -l < refused.txt)" -eq 1 ]
echo "slim: detect, run and profile work; report says: $(cat refused.txt)"
