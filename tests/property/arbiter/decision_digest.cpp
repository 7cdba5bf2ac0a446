// SPDX-License-Identifier: Apache-2.0
#include "decision_digest.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

namespace sharedgpu::test {
namespace {

using Words = std::array<std::uint64_t, sizeof(Message::body) / sizeof(std::uint64_t)>;

Words words_of(const Message& message) {
  Words words;
  std::memcpy(words.data(), message.body, sizeof words);
  return words;
}

// Calls each(name, value) for every field of an action. The kind of the action determines the order of the
// fields. For fields of a message, `name` is empty.
template <class Each>
struct Fields {
  Each each;

  void number(const char* name, std::uint64_t value) { each(name, value); }
  void time(const char* name, Nanoseconds value) { each(name, static_cast<std::uint64_t>(value.count())); }
  void uuid(const GpuUuid& gpu) {
    std::array<std::uint64_t, 2> words;
    static_assert(sizeof words == sizeof gpu.bytes);
    std::memcpy(words.data(), &gpu.bytes, sizeof words);
    for (const std::uint64_t word : words) each("gpu", word);
  }

  void operator()(const Send& send) {
    number("session", send.session.value);
    number("type", static_cast<std::uint64_t>(send.message.type));
    for (const std::uint64_t word : words_of(send.message)) each("", word);
  }
  void operator()(const SetGate& gate) {
    number("session", gate.session.value);
    number("open", gate.open);
  }
  void operator()(const SetContended& page) {
    number("session", page.session.value);
    number("contended", page.contended);
  }
  void operator()(const SetOversubscribed& page) {
    number("session", page.session.value);
    number("oversubscribed", page.oversubscribed);
    time("queue", page.queue);
  }
  void operator()(const SetTurnEnds& page) {
    number("session", page.session.value);
    time("at", page.at);
  }
  void operator()(const RecordLease& lease) {
    number("grant", lease.grant);
    number("tenant", lease.key.tenant.value);
    uuid(lease.key.gpu);
    number("job", lease.key.step.job);
    number("step", lease.key.step.step);
    number("epoch", lease.epoch.value);
    time("at", lease.at);
  }
  void operator()(const Drop& drop) { number("session", drop.session.value); }
  void operator()(const Look& look) { number("session", look.session.value); }
  void operator()(const ArmTimer& timer) { time("at", timer.at); }
  void operator()(const Note& note) { number("tenant", note.tenant.value); }
  void operator()(const Overstay& overstay) {
    number("tenant", overstay.tenant.value);
    uuid(overstay.gpu);
    number("response", static_cast<std::uint64_t>(overstay.response));
  }
  void operator()(const TellGang& told) { number("tenant", told.tenant.value); }
};

struct Kind {
  const char* name;
  std::uint64_t number;  // number in digests; may differ from the kind's index in the variant Action
  bool loose;

  static Kind of(const Send&) { return {"Send", 1, true}; }
  static Kind of(const SetGate&) { return {"SetGate", 2, true}; }
  static Kind of(const SetContended&) { return {"SetContended", 3, false}; }
  static Kind of(const SetOversubscribed&) { return {"SetOversubscribed", 4, false}; }
  static Kind of(const SetTurnEnds&) { return {"SetTurnEnds", 5, false}; }
  static Kind of(const RecordLease&) { return {"RecordLease", 6, true}; }
  static Kind of(const Drop&) { return {"Drop", 7, false}; }
  static Kind of(const Look&) { return {"Look", 8, false}; }
  static Kind of(const ArmTimer&) { return {"ArmTimer", 9, false}; }
  static Kind of(const Note&) { return {"Note", 10, false}; }
  static Kind of(const Overstay&) { return {"Overstay", 11, false}; }
  static Kind of(const TellGang&) { return {"TellGang", 12, false}; }
};

void mix(std::uint64_t& digest, std::uint64_t value) {
  digest = (digest ^ value) * 0x9e3779b97f4a7c15u + (digest >> 29);
}

// A message that the core sends: its name, and the names of the words of its body.
struct Shape {
  MessageType type;
  const char* name;
  std::vector<const char*> words;
};

const Shape& shape_of(MessageType type) {
  static const std::vector<Shape> shapes{
      {MessageType::welcome, "welcome", {"session", "tenant", "epoch", "backend"}},
      {MessageType::attached, "attached", {"gpu", "gpu", "capacity"}},
      {MessageType::verdict, "verdict", {"request", "granted", "allowed", "host_most"}},
      {MessageType::restore, "restore", {"epoch", "allowed"}},
      {MessageType::revoke, "revoke", {"epoch", "order"}},
      {MessageType::evict, "evict", {"allowed"}},
      {MessageType::memory_view, "memory_view", {"request", "total", "free"}},
      {MessageType::step, "step", {"epoch", "allowed", "order"}},
      {MessageType::prepare, "prepare", {"host", "sharers"}},
      {MessageType::others_wait, "others_wait", {}},
  };
  static const Shape other{MessageType::invalid, "message", {}};
  for (const Shape& shape : shapes)
    if (shape.type == type) return shape;
  return other;
}

std::string described(const Message& message) {
  const Shape& shape = shape_of(message.type);
  const Words words = words_of(message);
  std::string text = std::string(" ") + shape.name;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i >= shape.words.size() && words[i] == 0) continue;
    const std::string name = i < shape.words.size() ? shape.words[i] : "word" + std::to_string(i);
    text += " " + name + "=" + std::to_string(words[i]);
  }
  return text;
}

}  // namespace

void DecisionDigest::note(Nanoseconds now, const Action& action) {
  const Kind kind = std::visit([](const auto& its) { return Kind::of(its); }, action);
  const auto put = [&](const char* /*name*/, std::uint64_t value) {
    mix(strict, value);
    if (kind.loose) mix(loose, value);
  };
  put("kind", kind.number);
  put("now", static_cast<std::uint64_t>(now.count()));
  std::visit(Fields<decltype(put)>{put}, action);
}

void DecisionDigest::append(const DecisionDigest& more) {
  mix(strict, more.strict);
  mix(loose, more.loose);
}

std::string describe(Nanoseconds now, const Action& action) {
  std::array<char, 32> time;
  std::snprintf(time.data(), time.size(), "%.9f ", std::chrono::duration<double>(now).count());
  std::string text = time.data();
  text += std::visit([](const auto& its) { return Kind::of(its).name; }, action);
  const auto put = [&](const char* name, std::uint64_t value) {
    if (*name != '\0') text += std::string(" ") + name + "=" + std::to_string(value);
  };
  std::visit(Fields<decltype(put)>{put}, action);
  if (const auto* send = std::get_if<Send>(&action)) text += described(send->message);
  return text;
}

}  // namespace sharedgpu::test
