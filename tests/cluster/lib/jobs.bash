# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Helpers of the tests for jobs. `dir` is the cluster's folder; a job's output is $dir/jobs/ID.

# A test file calls cluster_setup and cluster_teardown from its own setup() and teardown().
cluster_setup() {
  dir=$SHAREDGPU_CLUSTER_DIR
  # $hold BYTES --seconds N: holds this much device memory, works on it, and prints $verified if the contents are right.
  hold="$dir/programs/hold --verify --bytes"
  verified="every byte verified"
  # shellcheck disable=SC1091
  source "$dir/env"
  cd "$dir/jobs" || return
}

cluster_teardown() {
  scancel --signal=KILL --full --user=root 2>/dev/null || true
  scancel --user=root --user=nobody 2>/dev/null || true
  wait_until 20 no_jobs
  if [[ ! ${BATS_TEST_COMPLETED-} ]]; then
    touch "$dir/failed"
    tail -n 20 "$dir"/jobs/* 2>/dev/null || true
  fi
  rm -rf "$dir"/jobs/*
}

no_jobs() { [[ -z $(squeue -h) ]]; }

# wait_until SECONDS COMMAND...
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    if ((SECONDS >= end)); then
      echo "gave up waiting for: $*" >&2
      return 1
    fi
    sleep 0.1
  done
}

# submit SBATCH_ARGUMENT... -- COMMAND ARGUMENT...: submits a job, and prints its number.
submit() {
  local options=()
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  shift
  sbatch --parsable --output="$dir/jobs/%j" --open-mode=append "${options[@]}" --wrap "$(printf '%q ' "$@")"
}

# Runs a command as the user nobody.
as_nobody() { setpriv --reuid nobody --regid nogroup --clear-groups "$@"; }

state() { squeue -h -t all -j "$1" -o %T 2>/dev/null; }
has_state() { [[ $(state "$1") == "$2" ]]; }
ended() { [[ $(state "$1") =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY)$ ]]; }

output() { cat "$dir/jobs/$1"; }
output_has() { grep -qF -- "$2" "$dir/jobs/$1" 2>/dev/null; }

# expect_state JOB STATE [SECONDS]: waits until the job has ended, and fails if its state is not STATE.
expect_state() {
  wait_until "${3:-60}" ended "$1" || { squeue; output "$1"; return 1; }
  has_state "$1" "$2" || { echo "job $1 is $(state "$1"), not $2"; output "$1"; return 1; }
}

running_together() { has_state "$1" RUNNING && has_state "$2" RUNNING; }

# Prints the sum of the lease seconds in sacct over all steps of a job; prints nothing if no step has lease seconds.
lease_seconds() {
  sacct --noconvert -n -P -j "$1" -o TRESUsageInTot | tr , '\n' | sed -n 's/^gres\/sharedgpu_lease=//p' | awk '{s+=$1;n=1}END{if(n)print s}'
}
has_lease() { [[ $(lease_seconds "$1") -gt 0 ]]; }

# summary JOB [STATE]: prints the summary of sharedgpu in the AdminComment of the job, or of the job's run with this
# state.
summary() {
  # The number of an array or heterogeneous job is also the number of one element or component.
  sacct -n -P -X -D -j "$1" ${2:+--state="$2"} -o JobIDRaw,AdminComment%5000 | grep "^$1|" | tail -n 1 | sed 's/^[^{]*//' |
    jq -ec .sharedgpu 2>/dev/null
}
# tells JOB FILTER [STATE]: succeeds if the summary exists and the jq filter is true. It checks that the summary exists,
# since jq succeeds on empty input.
tells() {
  local told
  told=$(summary "$1" "${3-}") && [[ $told ]] && jq -e "$2" <<<"$told" >/dev/null 2>&1
}
# Waits for at most SUMMARY_WAIT seconds.
expect_summary() {
  wait_until "${SUMMARY_WAIT:-40}" tells "$@" || { sacct -n -P -X -D -j "$1" -o JobIDRaw,State,AdminComment%5000; ls "$dir/sharedgpu/comments"; return 1; }
}
# Prints the lease time of a job's last run on this node, from the ledger.
held() {
  sharedgpu ledger --config "$dir/etc/sharedgpu.conf" --job "$1" --by tenant --format json | jq '.[-1].lease_seconds // 0'
}

# The pattern excludes arbiters of other clusters, and -o excludes children of the arbiter.
arbiter_pid() { pgrep -o -f "^[^ ]*/sbin/sharedgpud --config $dir/etc/sharedgpu.conf"; }
another_arbiter() { local now; now=$(arbiter_pid) && [[ $now != "$1" ]]; }
