#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The documentation shows the real outputs of the programs. tests/cluster/options.bats checks the output of srun.
load helpers

@test "README shows what sharedgpu --help prints" {
  diff -B <("$SHAREDGPU" --help) <("$BATS_TEST_DIRNAME/../../scripts/documented" "$BATS_TEST_DIRNAME/../../README.md" '`sharedgpu --help`:')
}

@test "scripts/documented fails on a page without the output" {
  run -1 "$BATS_TEST_DIRNAME/../../scripts/documented" "$BATS_TEST_DIRNAME/../../README.md" 'no such text'
}

# Copies the repository, so that a test can add mistakes to its pages.
copy_of_pages() {
  root=$BATS_TEST_TMPDIR/copy
  mkdir "$root"
  (cd "$BATS_TEST_DIRNAME/../.." && git ls-files -z --cached --others --exclude-standard |
    tar -c --null --ignore-failed-read -T - 2>/dev/null) | tar -x -C "$root"
  git -C "$root" init -q
}

@test "commands that are unknown, or have unknown options, are found in the documentation" {
  copy_of_pages
  cat >>"$root/docs/usage.md" <<'PAGE'
```sh
frobnicate --all
sharedgpu status --colour
sharedgpu run --gpus 2 -- sharedgpu nonsense
if
```
```
a block without a language
```
```console
no command
```
`sharedgpu ledger --colour` and `--sharedgpu-colour=red`
PAGE
  run -1 "$root/scripts/check-commands"
  for text in 'frobnicate --all' 'sharedgpu status has no option --colour' 'sharedgpu takes no argument nonsense' \
    'syntax error' 'language is not given' 'shows no command' 'sharedgpu ledger has no option --colour' \
    'no option --sharedgpu-colour'; do
    grep -qF -- "$text" <<<"$output" || { echo "not found: $text"; echo "$output"; false; }
  done
}

@test "links of the documentation that lead nowhere are found" {
  copy_of_pages
  cat >>"$root/docs/usage.md" <<'PAGE'
[a heading](install.md#no-such-heading) [its own](#nor-this)
PAGE
  run -1 "$root/scripts/check-site"
  [[ $output == *'install.html#no-such-heading leads to no heading'* && $output == *'#nor-this leads to no heading'* ]]
  echo '[a page](no-such-page.md)' >>"$root/docs/usage.md"
  run -1 "$root/scripts/check-site"
  [[ $output == *'no-such-page.md'* ]]
  sed -i '$d' "$root/docs/usage.md"
  echo '# new' >"$root/docs/"new.md
  run -1 "$root/scripts/check-site"
  [[ $output == *'new.md is not in the navigation'* ]]
}
