// SPDX-License-Identifier: Apache-2.0
// Uses arbitrary text as the AdminComment that a site has written. Nodes then add lease times to the comment.
// The site's text must be kept, and the lease times must be found again and add up.
#include "comment/comment.h"

#include <algorithm>

#include "input.h"

namespace {

// Returns true if removing one piece of `after` yields `text`.
bool is_kept(std::string_view text, std::string_view after) {
  if (after.size() < text.size()) return false;
  const auto front = std::mismatch(text.begin(), text.end(), after.begin()).first - text.begin();
  const auto back = std::mismatch(text.rbegin(), text.rend(), after.rbegin()).first - text.rbegin();
  return static_cast<std::size_t>(front + back) >= text.size();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  using fuzz::require;
  using Outcome = Merged::Outcome;
  const std::string comment(fuzz::text_of(data, size));
  JobSummary first;
  first.nodes = {"node one"};
  first.lease = std::chrono::milliseconds(1500);
  JobSummary second = first;
  second.nodes = {"node \"two\""};
  const auto before = find_summary(comment);
  const Merged one = add_share(comment, first);
  if (one.outcome != Outcome::changed) return 0;
  require(before || is_kept(comment, one.text), "what others wrote is lost");
  require(add_share(one.text, first).outcome == Outcome::complete, "a share is added twice");
  const Merged both = add_share(one.text, second);
  if (both.outcome != Outcome::changed) return 0;
  require(add_share(both.text, first).outcome == Outcome::complete, "a share is added twice");
  require(add_share(both.text, second).outcome == Outcome::complete, "a share is added twice");
  const auto sum = find_summary(both.text);
  require(sum && sum->lease == (before ? before->lease : std::chrono::milliseconds{}) + 2 * first.lease,
          "shares do not add up");
  return 0;
}
