#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests bench/compare with modelled times on the simulated GPU. Times are not checked, since the host is shared.
load helpers

compare() { # if `background` is set, bench/compare replaces the calling process
  set -- "$BATS_TEST_DIRNAME/../../bench/compare" --simulated --build "$BUILD" --out "$DIR/out" "$@"
  if [[ ${background-} ]]; then exec "$@"; else timeout 150 "$@"; fi
}

# results EXPRESSION: prints the value of a Python expression over `cases`, the measurements in results.json.
results() { python3 -c "import json; cases = json.load(open('$DIR/out/results.json'))['cases']; print($1)"; }

@test "the comparison has all its rows, right results and pictures" {
  compare --only big_50,interactive --seconds 0.6 --quanta 200ms
  for row in serial sharedgpu 'sharedgpu, Quantum=200ms' managed; do grep -qF "| big_50 | $row |" "$DIR/out/table.md"; done
  for row in "alone: hog" "alone: interactive" serial sharedgpu managed; do grep -qF "| interactive | $row |" "$DIR/out/table.md"; done
  grep -qF 'All programs had the same results as alone.' "$DIR/out/table.md"
  # Each case has all its runs, and each run has all its tenants. The results of each tenant are the same as in its run
  # alone.
  [[ $(results '[len(run["programs"]) for run in cases["big_50"].values()]') == '[1, 2, 2, 2]' ]]
  [[ $(results '[len(run["programs"]) for run in cases["interactive"].values()]') == '[1, 1, 2, 2]' ]]
  [[ $(results 'len({p["result"] for run in cases["big_50"].values() for p in run["programs"]})') == 1 ]]
  [[ $(results 'len({p["result"] for run in cases["interactive"].values() for p in run["programs"]})') == 2 ]]
  [[ $(results 'len(cases["big_50"]["sharedgpu"]["entries"]) > 0') == True ]] # the programs took turns
  [[ $(results 'len(cases["interactive"]["sharedgpu"]["programs"][1]["cells"]) > 0') == True ]]
  python3 -c 'import sys, xml.etree.ElementTree as xml; [xml.parse(name) for name in sys.argv[1:]]' \
    "$DIR/out/mixes.svg" "$DIR/out/unlike-tenants.svg"
}

@test "the comparison keeps its results when it is interrupted, and --resume does the rest" {
  compare --only fits_2 --seconds 0.6 --budget 0 | grep 'no time left for fits_2, alone: mix'
  [[ $(results 'cases') == "{'fits_2': {}}" ]]

  local status=0 first
  background=1 compare --only fits_2,twice_4 --without managed --seconds 0.6 --resume 3>&- &
  PIDS[compare]=$!
  until_true 60 grep -q 'alone: mix' "$DIR/out/results.json"
  kill -TERM "${PIDS[compare]}"
  finish compare
  ((status == 143))
  grep -qF '| fits_2 | serial |' "$DIR/out/table.md"
  first=$(results 'cases["fits_2"]["alone: mix"]')

  compare --only fits_2,twice_4 --without managed --seconds 0.6 --resume
  [[ $(results 'cases["fits_2"]["alone: mix"]') == "$first" ]]
  for row in serial 'plain CUDA together' sharedgpu; do grep -qF "| fits_2 | $row |" "$DIR/out/table.md"; done
  for row in serial sharedgpu; do grep -qF "| twice_4 | $row |" "$DIR/out/table.md"; done
  [[ $(results 'len(cases["twice_4"]["plain CUDA, 2 together"]["programs"])') == 2 ]]
}

@test "the comparison fails if a program fails" {
  SIMGPU_LAUNCH_FAIL_AT=6 run -1 compare --only fits_2 --seconds 0.6
  grep -q 'fits_2, alone: mix: exit status 1: .*CUDA_ERROR_LAUNCH_FAILED' "$DIR/out/table.md"
}
