#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests the traces that the library leaves in a program, and its behaviour beside other preloaded libraries.
load helpers

# traces FILE SECTION...: prints these sections of FILE, which is an output of print_traces(), without the parts that
# differ between runs.
traces() {
  local file=$1 section
  shift
  for section; do
    awk -v want="$section" '/^(maps|files|process|threads|environment)$/ { now = $0; next } now == want' "$file" |
      if [[ $section == maps ]]; then
        awk 'NF > 5 { print $6 $7 }' | sort -u
      elif [[ $section == files ]]; then
        sed -E 's/^[0-9]+ //; s/\[[0-9]+\]/[]/' | sort
      else
        grep -vE '^(LD_PRELOAD|SHAREDGPU_[A-Z_]*|_|BATS_[A-Z_]*)=|^SigQ'
      fi
  done
}

# difference SECTION: prints lines that appear only with (>) or only without (<) the library.
difference() {
  diff <(traces "$DIR/without" "$1") <(traces "$DIR/with" "$1") | grep '^[<>]' || true
}

# watch PROGRAM COMMAND...: runs the program without the library, and then by COMMAND, which loads the library.
watch() {
  local program=$1
  shift
  "$PROGRAMS/$program" >"$DIR/out" 2>"$DIR/err" 3>&-
  [[ ! -s $DIR/err ]]
  mv "$DIR/out" "$DIR/without"
  "$@" "$PROGRAMS/$program" >"$DIR/out" 2>"$DIR/err" 3>&-
  [[ ! -s $DIR/err ]]
  mv "$DIR/out" "$DIR/with"
}

@test "a program without CUDA has the library's file in its maps, and nothing else" {
  start_arbiter
  watch nocuda env LD_PRELOAD="$PRELOAD"
  [[ $(difference maps | grep -vE '/lib(dl\.so\.2|pthread\.so\.0)$') == "> $PRELOAD" ]]
  local section
  for section in files process threads environment; do [[ -z $(difference $section) ]]; done
  json_is 'len(s["tenants"])' 0
}

@test "a program without CUDA under strace: the library's files are opened, nothing else is called" {
  command -v strace >/dev/null
  calls() { strace -f -qq -e trace='!brk,mmap,munmap,mprotect,openat,read,pread64,close,fstat,newfstatat' -o "$1" "${@:2}"; }
  calls "$DIR/calls.with" env LD_PRELOAD="$PRELOAD" true
  count() { awk '{ sub(/^[0-9]+ +/, ""); sub(/\(.*/, ""); print }' "$1" | sort | uniq -c; }
  # `env` itself makes system calls, so the run without the library starts with `env`, too.
  calls "$DIR/calls.without" env true
  diff <(count "$DIR/calls.without") <(count "$DIR/calls.with")
}

@test "a program with CUDA: two threads, a socket and a pipe, the lease page; nothing of its own is changed" {
  start_arbiter
  watch guest env LD_PRELOAD="$PRELOAD"
  diff - <(difference threads) <<<$'> sharedgpu-talk\n> sharedgpu-turns'
  diff - <(difference files) <<<$'> pipe:[]\n> pipe:[]\n> socket:[]'
  diff - <(difference maps | grep -vE '/lib(dl\.so\.2|pthread\.so\.0)$') < <(printf '> %s\n' "$PRELOAD" '/memfd:sharedgpu-lease(deleted)' | sort -k2)
  [[ -z $(difference process) ]]
  [[ -z $(difference environment) ]]
}

@test "a good run writes what it writes without the library, and nothing else" {
  start_arbiter
  local program
  for program in "async_alloc" "contexts --rounds 1" "getproc" "graph --bytes 32MiB" "late" "library" "threads --bytes 32MiB"; do
    # shellcheck disable=SC2086
    set -- $program
    plain without "$@"
    succeeds without
    tenant with "$@"
    succeeds with
    diff "$DIR/without.out" "$DIR/with.out"
    diff "$DIR/without.err" "$DIR/with.err"
  done
}

# beside LIBRARY...: runs programs of every kind with these libraries in LD_PRELOAD, while another tenant wants the GPU.
beside() {
  local IFS=: program
  local order="$*"
  unset IFS
  for program in "getproc" "library --rounds 4" "fork" "late" "hold --bytes 50% --of 256MiB --iterations 6 --verify"; do
    # shellcheck disable=SC2086
    set -- $program
    LD_PRELOAD=$order plain guest "$@"
    succeeds guest
    [[ ! -s $DIR/guest.err ]] || { cat "$DIR/guest.err"; return 1; }
  done
}

other() { echo "$BUILD/tests/interposer/preloads/$1.so"; }

contend() {
  start_arbiter
  tenant rival hold --bytes 75% --of 256MiB --changes 20 --kernel-ms 20 --seconds 600 --progress
  progresses rival
}

@test "an allocator preloaded before" { contend; beside "$(other allocator)" "$PRELOAD"; }
@test "an allocator preloaded after" { contend; beside "$PRELOAD" "$(other allocator)"; }
@test "another dlsym preloaded before" { contend; beside "$(other resolver)" "$PRELOAD"; }
@test "another dlsym preloaded after" { contend; beside "$PRELOAD" "$(other resolver)"; }
@test "another allocator before and another dlsym after" { contend; beside "$(other allocator)" "$PRELOAD" "$(other resolver)"; }
@test "another allocator and another dlsym preloaded before" { contend; beside "$(other allocator)" "$(other resolver)" "$PRELOAD"; }

@test "beside another dlsym, before or after, the program is managed all the same" {
  start_arbiter
  local order sessions
  came() { grep -c ': came$' "$DIR/arbiter.log" || true; }
  for order in "$(other resolver):$PRELOAD" "$PRELOAD:$(other resolver)"; do
    sessions=$(came)
    LD_PRELOAD=$order plain managed library --rounds 2
    succeeds managed
    until_true 10 test "$(came)" = $((sessions + 1))
  done
}

@test "another dlsym before ours sees the program's look-ups" {
  start_arbiter
  RESOLVER_TELLS=$DIR/told LD_PRELOAD=$(other resolver):$PRELOAD plain told library --rounds 2
  succeeds told
  grep -qE '^[1-9][0-9]* lookups' "$DIR/told"
}
