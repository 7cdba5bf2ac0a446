// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/trace_text.h"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace sharedgpu::cli {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

const GpuUuid kGpu{{1}};
constexpr Nanoseconds kBegin = 1795305600s;

Trace some_trace() {
  Trace trace{.host = "node1", .tenants = {}, .spans = {}};
  trace.tenants[TenantId{1}] = {.label = "job 21 (ann)", .gpus = {kGpu}};
  trace.tenants[TenantId{2}] = {.label = "job <22> & \"bob\"", .gpus = {kGpu}};
  const auto add = [&](SpanKind kind, std::uint64_t tenant, Nanoseconds from, Nanoseconds to) {
    trace.spans.push_back({.kind = kind,
                           .tenant = TenantId{tenant},
                           .gpu = kind == SpanKind::lease ? kGpu : GpuUuid{},
                           .from = kBegin + from,
                           .to = kBegin + to,
                           .open = false});
  };
  add(SpanKind::lease, 1, 0s, 5s);
  add(SpanKind::waiting, 2, 1s, 6s);
  add(SpanKind::evicting, 1, 5s, 6s);
  add(SpanKind::entering, 2, 5s, 6s);
  add(SpanKind::lease, 2, 6s, 9s + 1500us);
  return trace;
}

TEST_CASE("The JSON has the fields of the Trace Event Format, and names each lane") {
  const Json json = Json::parse(trace_as_json(some_trace()));
  REQUIRE(json["traceEvents"].is_array());
  CHECK(json["displayTimeUnit"] == "ms");
  CHECK(json["otherData"]["host"] == "node1");
  std::set<std::pair<int, int>> threads;
  std::set<int> processes;
  std::map<std::string, int> spans;
  for (const Json& event : json["traceEvents"]) {
    REQUIRE(event["pid"].is_number_integer());
    REQUIRE(event["tid"].is_number_integer());
    REQUIRE(event["name"].is_string());
    if (event["ph"] == "M") {
      if (event["name"] == "thread_name") threads.emplace(event["pid"], event["tid"]);
      if (event["name"] == "process_name") processes.insert(event["pid"].get<int>());
      REQUIRE(event["args"].is_object());
      continue;
    }
    REQUIRE(event["ph"] == "X");
    REQUIRE(event["ts"].is_number_integer());
    REQUIRE(event["dur"].is_number_integer());
    CHECK(event["dur"] >= 0);
    CHECK(processes.count(event["pid"].get<int>()) == 1);
    CHECK(threads.count({event["pid"], event["tid"]}) == 1);
    ++spans[event["cat"].get<std::string>()];
  }
  // The trace shows each lease twice: once for its GPU and once for its tenant.
  CHECK(spans ==
        std::map<std::string, int>{{"lease", 4}, {"waiting", 1}, {"moving in", 1}, {"moving out", 1}});
}

TEST_CASE("Spans of one lane do not overlap after rounding") {
  std::map<std::pair<int, int>, std::int64_t> ends;
  const Json trace = Json::parse(trace_as_json(some_trace()));
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    std::int64_t& end = ends[{event["pid"], event["tid"]}];
    CHECK(event["ts"].get<std::int64_t>() >= end);
    end = event["ts"].get<std::int64_t>() + event["dur"].get<std::int64_t>();
  }
}

TEST_CASE("An empty trace is a trace, and an empty picture is a picture") {
  const Trace nothing{.host = "node1", .tenants = {}, .spans = {}};
  CHECK(Json::parse(trace_as_json(nothing))["traceEvents"].empty());
  CHECK(trace_as_svg(nothing).ends_with("</svg>\n"));
}

TEST_CASE("The picture has a bar for each span, and names are written as text") {
  const std::string svg = trace_as_svg(some_trace());
  CHECK(svg.starts_with("<svg xmlns="));
  CHECK(svg.find("job &lt;22&gt; &amp; &quot;bob&quot;</text>") != std::string::npos);
  CHECK(svg.find("<22>") == std::string::npos);
  CHECK(svg.find("<title>job 21 (ann) has the GPU ") != std::string::npos);
  CHECK(svg.find("waits ") != std::string::npos);
}

TEST_CASE("The size of the picture does not depend on the number of turns") {
  Trace trace = some_trace();
  trace.spans.clear();
  for (int i = 0; i < 100'000; ++i)
    trace.spans.push_back({.kind = SpanKind::lease,
                           .tenant = TenantId{1},
                           .gpu = kGpu,
                           .from = kBegin + i * 10ms,
                           .to = kBegin + i * 10ms + 5ms,
                           .open = false});
  CHECK(trace_as_svg(trace).size() < 20'000);
}

}  // namespace
}  // namespace sharedgpu::cli
