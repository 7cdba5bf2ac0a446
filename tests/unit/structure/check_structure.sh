#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that scripts/check-structure finds each kind of mistake, and counts right.
#   check_structure.sh SOURCES
set -euo pipefail
root=$1
check=$root/scripts/check-structure
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
copy=$work/copy

# A copy of the sources outside of any repository.
mkdir "$copy"
tar -C "$root" --exclude=./.git --exclude='./build*' --exclude=./.cuda --exclude=./.carry -cf - . | tar -C "$copy" -xf -
"$check" --root "$copy" >"$work/said" || { cat "$work/said"; exit 1; }

# finds WORDS: expects that the check fails and prints WORDS.
finds() {
  if "$check" --root "$copy" >"$work/said"; then
    echo "not found: $1" >&2
    exit 1
  fi
  grep -qF -- "$1" "$work/said" || { echo "found otherwise: $1" >&2; cat "$work/said" >&2; exit 1; }
}
# planted FILE TEXT WORDS: expects that the check prints WORDS if TEXT is at the end of FILE.
planted() {
  printf '%s\n' "$2" >>"$copy/$1"
  finds "$3"
  if [[ -e $root/$1 ]]; then cp "$root/$1" "$copy/$1"; else rm "$copy/$1"; fi
}
spdx='// SPDX-License-Identifier: Apache-2.0'

planted config/quantities.h '#include "config/settings.h"' "include cycle in config: quantities settings"
planted protocol/split.h '#include "config/quantities.h"' "protocol may not include config/quantities.h"
planted config/quantities.cpp '#include "gres/shares.h"' "config may not include gres/shares.h"
planted gres/shares.cpp '#include "spank/arguments.h"' "gres may not include spank/arguments.h"
planted config/quantities.cpp 'const char* name = "SHAREDGPU_NEW";' "SHAREDGPU_NEW is spelled outside"
planted config/new.h '#pragma once' "config/new.h: no SPDX line"
planted config/new.h '// SPDX-License-Identifier: GPL-2.0-or-later' "config/new.h: the licence is GPL-2.0-or-later"
planted accounting/new.h "$spdx" "accounting/new.h: the licence is Apache-2.0"
planted docs/usage.md '[elsewhere](nowhere.md)' "docs/usage.md: there is no nowhere.md"
planted docs/design/protocol.md '| 999 | `none` | nobody | nothing |' 'docs/design/protocol.md: 999 `none` is no message'
sed -i 's/^  hello = 1,$/&\n  goodbye = 998,/' "$copy/protocol/messages.h"
finds 'docs/design/protocol.md: no row for 998 `goodbye`'
cp "$root/protocol/messages.h" "$copy/protocol/messages.h"
mkdir "$copy/config/part"
planted config/part/new.h "$spdx" "has no line for config/part"

# Adds an exception for a folder that needs none: the check must name it.
sed -i 's/_TO_BE_REMOVED = """$/&\nconfig: none/' "$copy/scripts/check-structure"
if "$copy/scripts/check-structure" >"$work/said"; then echo "an unneeded exception was accepted" >&2; exit 1; fi
[[ $(grep -cF "remove its line: config: none" "$work/said") == 2 ]] || { cat "$work/said" >&2; exit 1; }

# A name in a comment or in an #error message is no fault.
printf '// "SHAREDGPU_NEW"\n/* "SHAREDGPU_NEW" */\n#error "SHAREDGPU_NEW"\n' >>"$copy/config/quantities.cpp"
"$check" --root "$copy" >"$work/said" || { cat "$work/said"; exit 1; }
mkdir "$work/empty"
if "$check" --root "$work/empty" >/dev/null; then echo "an empty tree was accepted" >&2; exit 1; fi

# The totals of a tree that is small enough to count by hand.
core=$work/small/arbiter/core
mkdir -p "$core"
cat >"$core/machine.h" <<'END'
// SPDX-License-Identifier: Apache-2.0
// What of the state is kept.
#pragma once
struct Wheel {
  int turns = 0;  // no longer used
  int teeth{};
  Wheel* next = nullptr;
};
class Machine {
 public:
  explicit Machine(int size) : size_(size) {}
  Machine(const Machine&) = delete;
  // It runs. Whether it stops is unknown.
  void start(Wheel& wheel);
  void stop(Wheel& wheel);
  bool operator==(const Machine& other) const { return size_ == other.size_; }

 private:
  void (*hook_)(int) = nullptr;
  std::map<int, std::function<void(int)>> handlers_;
  struct Part {
    int size = 0;
  } part_;
  int size_;
};
END
{
  printf '#include "arbiter/core/machine.h"\n\nvoid Machine::start(Wheel& wheel) {\n'
  printf '  wheel.turns = 1;\n  wheel.next->teeth = 2;\n  size_ = 1;\n  // start(wheel) in a comment: "stop(wheel)"\n'
  for ((i = 0; i < 60; ++i)); do echo "  ++wheel.next->turns;"; done
  printf '  stop(wheel);\n}\n'
} >"$core/start.cpp"
cat >"$core/stop.cpp" <<'END'
#include "arbiter/core/machine.h"
namespace {
constexpr int kNone[] = {0};
}
void Machine::stop(Wheel& wheel) {
  if (wheel.turns == 0 || wheel.teeth == kNone[0]) start(*wheel.next);
  wheel.turns--;
}
END
"$check" --root "$work/small" --table >"$work/table"
"$check" --root "$work/small" --report >"$work/report"
counted() {
  sed 's/  */ /g' "$work/table" | grep -qxF -- "$1" || { echo "not counted: $1" >&2; cat "$work/table" >&2; exit 1; }
}
counted " arbiter/core $(cat "$core"/* | wc -l)"
counted "class Machine (arbiter/core/machine.h) 5 methods, 4 fields"
counted "class Wheel (arbiter/core/machine.h) 0 methods, 3 fields"
counted "include cycles 0, of 0 units"
counted "pairs of files that call each other, arbiter/core 1"
counted "fields written from several files, arbiter/core 1"
counted " Wheel 1 of 3"
counted "longest function 67 lines: arbiter/core/start.cpp start"
counted "functions of more than 60 lines 1"
counted "comments 4"
counted " that begin without a noun 1"
counted " sentences that do 2"
counted " about the past: no longer 1"
grep -qxF "   67 arbiter/core/start.cpp:3: start" "$work/report"
grep -qxF "Wheel::turns: start stop" "$work/report"
grep -qF "Machine: arbiter/core/start -> stop (stop), <- (start)" "$work/report"
grep -qF "arbiter/core/machine.h:2: What of the state is kept." "$work/report"
echo "every mistake is found, and all is counted"
