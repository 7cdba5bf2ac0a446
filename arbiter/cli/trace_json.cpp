// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <set>

#include "arbiter/cli/trace_text.h"
#include "protocol/gpu_names.h"

namespace sharedgpu::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Perfetto shows processes in the order of their numbers. The numbers of tenants begin above all numbers of
// GPUs.
constexpr std::uint64_t kFirstTenant = 10'000;

struct Lane {
  std::uint64_t process = 0;
  std::uint64_t thread = 0;
};

const char* name_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::lease:
      return "lease";
    case SpanKind::waiting:
      return "waiting";
    case SpanKind::entering:
      return "moving in";
    case SpanKind::evicting:
      return "moving out";
    case SpanKind::overuse:
      return "overuse";
  }
  return "";
}

std::int64_t microseconds(Nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

// Writes events as lines of one JSON array, and keeps no tree of values, since the tree of a long trace would
// take much memory.
class Events {
 public:
  void add(const OrderedJson& event) {
    text_ += (text_.empty() ? "" : ",\n") + event.dump(-1, ' ', false, kReplace);
  }
  void name(const char* what, Lane lane, const std::string& name) {
    add({{"ph", "M"},
         {"name", what},
         {"pid", lane.process},
         {"tid", lane.thread},
         {"args", {{"name", name}}}});
  }
  void sort(Lane lane, std::uint64_t place) {
    add({{"ph", "M"},
         {"name", "process_sort_index"},
         {"pid", lane.process},
         {"tid", 0},
         {"args", {{"sort_index", place}}}});
  }
  void span(const Span& span, Lane lane, const std::string& name) {
    const std::int64_t from = microseconds(span.from);
    OrderedJson event = {
        {"ph", "X"},          {"name", name}, {"cat", name_of(span.kind)},          {"pid", lane.process},
        {"tid", lane.thread}, {"ts", from},   {"dur", microseconds(span.to) - from}};
    if (span.kind == SpanKind::lease) event["args"] = {{"gpu", format_gpu(span.gpu)}, {"open", span.open}};
    add(event);
  }
  const std::string& text() const { return text_; }

 private:
  static constexpr auto kReplace = OrderedJson::error_handler_t::replace;
  std::string text_;
};

}  // namespace

std::string trace_as_json(const Trace& trace) {
  Events events;
  std::map<GpuUuid, std::uint64_t> gpus;
  for (const auto& [id, tenant] : trace.tenants)
    for (const GpuUuid& gpu : tenant.gpus) gpus.emplace(gpu, 0);
  std::uint64_t next = 0;
  for (auto& [gpu, process] : gpus) {
    process = ++next;
    events.name("process_name", {process, 0}, format_gpu(gpu));
    events.sort({process, 0}, process);
  }
  for (const auto& [id, tenant] : trace.tenants) {
    for (const GpuUuid& gpu : tenant.gpus) events.name("thread_name", {gpus.at(gpu), id.value}, tenant.label);
    const Lane lane{kFirstTenant + id.value, 0};
    events.name("process_name", lane, tenant.label);
    events.sort(lane, kFirstTenant + id.value);
    for (const SpanKind kind : {SpanKind::waiting, SpanKind::entering, SpanKind::evicting, SpanKind::overuse})
      events.name("thread_name", {lane.process, static_cast<std::uint64_t>(kind)}, name_of(kind));
    for (const GpuUuid& gpu : tenant.gpus)
      events.name("thread_name", {lane.process, 100 + gpus.at(gpu)}, "lease of " + format_gpu(gpu));
  }
  for (const Span& span : trace.spans) {
    const std::uint64_t process = kFirstTenant + span.tenant.value;
    const bool lease = span.kind == SpanKind::lease;
    if (lease) events.span(span, {gpus.at(span.gpu), span.tenant.value}, trace.tenants.at(span.tenant).label);
    const std::uint64_t thread = lease ? 100 + gpus.at(span.gpu) : static_cast<std::uint64_t>(span.kind);
    events.span(span, {process, thread}, name_of(span.kind));
  }
  const OrderedJson about = {{"program", "sharedgpu " SHAREDGPU_VERSION}, {"host", trace.host}};
  return "{\"displayTimeUnit\": \"ms\",\n\"otherData\": " + about.dump() + ",\n\"traceEvents\": [\n" +
         events.text() + "\n]}\n";
}

}  // namespace sharedgpu::cli
