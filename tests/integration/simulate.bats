#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests bench/simulate: many nodes, and replays of ledgers.
load helpers

# simulated ARGUMENT...: runs bench/simulate and prints all columns but EVENTS/S.
simulated() {
  timeout 100 "$BUILD/bench/simulate" --time 60 --tenants 4 "$@" | awk '{ $NF = ""; print }'
}

@test "the results of nodes do not depend on the number of threads" {
  local one two
  one=$(simulated --policy credit --policy elastic --nodes 12 --threads 1)
  two=$(simulated --policy credit --policy elastic --nodes 12 --threads 3)
  [ "$one" = "$two" ]
  [[ $one == *"/48 "* ]] # the column has a value for each of the 48 programs
  [ "$(simulated --policy credit --nodes 1)" != "$(simulated --policy credit --nodes 2)" ]
}

@test "a trace's programs are spread over the nodes" {
  printf 'size,burst_s,pause_s,work_s\n60,1,1,5\n60,1,1,5\n' >"$DIR/trace"
  apart=$(simulated --policy fcfs --trace "$DIR/trace" --nodes 5)
  [[ $apart == *" 2/2 "* ]]
  # No program waits for another program.
  [ "$(awk 'NR == 2 { print ($6 < 0.2) }' <<<"$apart")" = 1 ]
}

# refused SAYING ARGUMENT...: succeeds if bench/simulate ends with status 2 and prints SAYING.
refused() {
  local saying=$1
  shift
  run timeout 100 "$BUILD/bench/simulate" --policy fcfs --time 5 "$@"
  ((status == 2)) && [[ $output == *"simulate: $saying"* ]] || { echo "$status: $output" && false; }
}

@test "errors in a trace name the line" {
  local trace=$DIR/trace
  printf 'size,units,size\n' >"$trace" && refused "$trace:1: size: more than once" --trace "$trace"
  printf 'size,weight\n' >"$trace" && refused "$trace:1: unknown column 'weight'" --trace "$trace"
  printf 'size,units\n5,1\n5,\n' >"$trace" && refused "$trace:3: units: '' is not a number" --trace "$trace"
  printf 'size,units\n5,1,\n' >"$trace" && refused "$trace:2: 3 fields, not 2" --trace "$trace"
  printf 'size,burst_s\n5,1e-9\n' >"$trace" && refused "$trace:2: burst_s: '1e-9'" --trace "$trace"
  refused "$DIR: cannot be read" --trace "$DIR"
  refused "$DIR/none: cannot be read" --trace "$DIR/none"
  printf '\xef\xbb\xbfsize,work_s\r\n60,1\r\n' >"$trace"
  [[ $(simulated --policy fcfs --trace "$trace") == *" 1/1 "* ]]
}

@test "a file that cannot be written is an error" {
  refused "$DIR/none/a.fcfs.svg: cannot be written" --plot "$DIR/none/a"
  refused "$DIR/none/a.fcfs.csv: cannot be written" --timeline "$DIR/none/a"
  run bash -c "exec '$BUILD/bench/simulate' --policy fcfs --time 5 >/dev/full"
  ((status == 2)) && [[ $output == *"cannot write to standard output"* ]]
}

@test "--each needs a single node" {
  run timeout 100 "$BUILD/bench/simulate" --nodes 2 --each
  ((status == 2))
  [[ $output == *"--each, --timeline and --plot need a single node; the number of nodes is 2"* ]]
}

# curves FILE: prints the number of curves in the file.
curves() { python3 -c 'import sys, xml.etree.ElementTree as x; print(sum(e.tag.endswith("polyline") for e in x.parse(sys.argv[1]).iter()))' "$1"; }

@test "--plot draws leases over time, and the time that deadlines leave to others" {
  printf 'size,burst_s,period_s,deadline_s,priority,request,limit\n5,0.0042,0.033,0.008,1,50,100\n5,0,0,0,0,0,100\n' >"$DIR/trace"
  simulated --trace "$DIR/trace" --policy deadline --policy fcfs --plot "$DIR/plot"
  [ "$(curves "$DIR/plot.deadline.svg")" = 4 ]
  grep -q "a deadline was missed" "$DIR/plot.deadline.svg"
  simulated --policy elastic --plot "$DIR/plot.svg"
  [ "$(curves "$DIR/plot.elastic.svg")" = 4 ] # programs without limits
}

@test "a ledger without leases cannot be replayed" {
  start_arbiter
  run timeout 100 "$BUILD/bench/simulate" --ledger "$DIR/state/ledger"
  ((status == 2))
  [[ $output == *"$DIR/state/ledger: has no leases to replay"* ]]
  run timeout 100 "$BUILD/bench/simulate" --ledger "$DIR/none"
  ((status == 2))
}
