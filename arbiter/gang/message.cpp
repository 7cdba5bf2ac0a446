// SPDX-License-Identifier: Apache-2.0
#include "arbiter/gang/message.h"

#include <algorithm>
#include <charconv>
#include <concepts>

#include "protocol/node_name.h"

namespace sharedgpu {
namespace {

constexpr std::string_view kReport = "sharedgpu-report-3";
constexpr std::string_view kOrder = "sharedgpu-order-3";
constexpr std::string_view kPatience = "sharedgpu-patience-3";
constexpr std::string_view kQuestion = "sharedgpu-question-3";
constexpr std::string_view kKinds[] = {kReport, kOrder, kPatience, kQuestion};

std::string_view kind_of(const GangReport&) { return kReport; }
std::string_view kind_of(const GangOrder&) { return kOrder; }
std::string_view kind_of(const GangPatience&) { return kPatience; }
std::string_view kind_of(const GangQuestion&) { return kQuestion; }

// The fields in the order of the text.
void fields(auto& v, auto& report) requires std::same_as<std::remove_cvref_t<decltype(report)>, GangReport> {
  v(report.number);
  v(report.phase, Phase::leaving);
  v(report.offers);
  v(report.ends);
  v(report.ready);
  v(report.drained);
  v(report.steps);
  v(report.present);
  v(report.wants);
  v(report.idle);
  v(report.settled);
  v(report.grows);
}
void fields(auto& v, auto& order) requires std::same_as<std::remove_cvref_t<decltype(order)>, GangOrder> {
  v(order.seen);
  v(order.command, GangCommand::leave);
  v(order.possible);
  v(order.apart);
  v(order.stopped);
  v(order.wanted);
  v(order.idle);
  v(order.settled);
  v(order.urgent);
  v(order.drains);
  v(order.grows);
  v(order.lacks);
  v(order.steps);
  v(order.since);
}
void fields(auto&, const GangPatience&) {}
void fields(auto&, const GangQuestion&) {}
void envelope(auto& v, auto& message) {
  v(message.node);
  v(message.job);
  v(message.run);
  v(message.life);
  v(message.number);
  v(message.reader);
  v(message.nodes);
  v(message.is_new);
}

struct Writer {
  std::string text;
  void operator()(const std::string& word) { text += ' ' + word; }
  template <std::integral Number>
  void operator()(Number number) {
    text += ' ' + std::to_string(number);
  }
  void operator()(bool value) { text += value ? " 1" : " 0"; }
  void operator()(Nanoseconds time) { (*this)(time.count()); }
  template <class Word>
  void operator()(Word word, Word /*highest*/) {
    (*this)(static_cast<unsigned>(word));
  }
};

struct Reader {
  std::string_view rest;
  bool good = true;
  template <std::integral Number>
  void operator()(Number& number) {
    good = good && rest.starts_with(' ');
    if (!good) return;
    const char* const begin = rest.data() + 1;
    const auto [end, error] = std::from_chars(begin, rest.data() + rest.size(), number);
    good = error == std::errc();
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  }
  void operator()(std::string& word) {
    good = good && rest.starts_with(' ');
    if (!good) return;
    rest.remove_prefix(1);
    word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(word.size());
    good = !word.empty() && word.size() <= kLongestNodeName &&
           std::all_of(word.begin(), word.end(), may_be_in_node_name);
  }
  unsigned below(unsigned count) {
    unsigned value = 0;
    (*this)(value);
    good = good && value < count;
    return value;
  }
  void operator()(bool& value) { value = below(2) == 1; }
  void operator()(Nanoseconds& time) {
    Nanoseconds::rep count = 0;
    (*this)(count);
    time = Nanoseconds(count);
  }
  template <class Word>
  void operator()(Word& word, Word highest) {
    word = static_cast<Word>(below(static_cast<unsigned>(highest) + 1));
  }
};

}  // namespace

std::string format_message(const GangMessage& message) {
  Writer writer{.text =
                    std::string(std::visit([](const auto& what) { return kind_of(what); }, message.what))};
  envelope(writer, message);
  std::visit([&](const auto& what) { fields(writer, what); }, message.what);
  return writer.text;
}

std::optional<GangMessage> parse_message(std::string_view text) {
  GangMessage message;
  Reader reader{.rest = text};
  const std::string_view kind = text.substr(0, text.find(' '));
  if (kind == kOrder)
    message.what = GangOrder{};
  else if (kind == kPatience)
    message.what = GangPatience{};
  else if (kind == kQuestion)
    message.what = GangQuestion{};
  else if (kind != kReport)
    return std::nullopt;
  reader.rest.remove_prefix(kind.size());
  envelope(reader, message);
  std::visit([&](auto& what) { fields(reader, what); }, message.what);
  if (!reader.good || !reader.rest.empty() || message.life == 0) return std::nullopt;
  return message;
}

bool is_of_another_version(std::string_view text) {
  const std::string_view kind = text.substr(0, text.find(' '));
  for (const std::string_view ours : kKinds)
    if (kind != ours && kind.starts_with(ours.substr(0, ours.rfind('-') + 1))) return true;
  return false;
}

}  // namespace sharedgpu
