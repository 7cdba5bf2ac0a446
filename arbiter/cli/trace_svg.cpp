// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "arbiter/cli/trace_text.h"
#include "protocol/gpu_names.h"

namespace sharedgpu::cli {
namespace {

// In pixels.
constexpr double kLabels = 190;
constexpr double kWidth = 960;  // width of the time axis
constexpr double kMargin = 16;
constexpr double kRow = 24;
constexpr double kHead = 58;   // height of title and legend
constexpr double kFine = 0.5;  // shorter gaps are not drawn, so that a picture of many turns stays small

// These colours can be told apart by people who are colour-blind (Okabe and Ito).
constexpr const char* kColours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                    "#56b4e9", "#d55e00", "#b5a900"};

struct Look {
  SpanKind kind;
  const char* name;
  double top;  // distance from the top of the row
  double height;
  const char* fill;  // null: the tenant's colour
};
// Later entries are drawn over earlier ones.
constexpr Look kLooks[] = {
    {SpanKind::lease, "has the GPU", 4, 14, nullptr},
    {SpanKind::waiting, "waits", 10, 3, "#9a9a9a"},
    {SpanKind::entering, "memory moves in", 6, 4, "#3c3c3c"},
    {SpanKind::evicting, "memory moves out", 14, 4, "#3c3c3c"},
    {SpanKind::overuse, "overuse", 15, 3, "#d00000"},
};

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe += c;
  }
  return safe;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string rectangle(double x, double y, double width, double height, const std::string& fill,
                      const std::string& title) {
  std::string text = R"(<rect x=")" + number(x) + R"(" y=")" + number(y) + R"(" width=")" + number(width) +
                     R"(" height=")" + number(height) + R"(" fill=")" + fill + "\"";
  return text + (title.empty() ? "/>\n" : "><title>" + escaped(title) + "</title></rect>\n");
}

std::string words(double x, double y, const std::string& text, const char* attributes = "") {
  return R"(<text x=")" + number(x) + R"(" y=")" + number(y) + "\" " + attributes + ">" + escaped(text) +
         "</text>\n";
}

std::string clock_text(Nanoseconds moment, const char* form) {
  const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(moment).count();
  std::tm parts = {};
  localtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), form, &parts);
  return text.data();
}

// Returns the distance between two marks on the time axis. It is chosen so that there are at most about eight
// marks.
Nanoseconds step_for(Nanoseconds length) {
  using namespace std::chrono_literals;
  for (const Nanoseconds step :
       {1s, 2s, 5s, 10s, 15s, 30s, 60s, 120s, 300s, 600s, 900s, 1800s, 3600s, 7200s, 21600s, 43200s})
    if (length / step <= 8) return step;
  return 86400s * std::max<long>(1, length / 86400s / 8 + 1);
}

class Picture {
 public:
  explicit Picture(const Trace& trace) : trace_(trace) {
    for (const auto& [id, tenant] : trace.tenants)
      for (const GpuUuid& gpu : tenant.gpus) rows_[gpu].push_back(id);
    from_ = Nanoseconds::max();
    for (const Span& span : trace.spans) {
      from_ = std::min(from_, span.from);
      to_ = std::max(to_, span.to);
      spans_[span.tenant].push_back(&span);
    }
    if (trace.spans.empty()) from_ = to_;
    if (to_ <= from_) to_ = from_ + std::chrono::seconds(1);
    for (const auto& [gpu, tenants] : rows_) height_ += kRow * static_cast<double>(tenants.size() + 1) + 8;
    height_ += kHead;
  }

  std::string text() {
    std::string picture = R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 )" +
                          number(kLabels + kWidth + 2 * kMargin) + " " + number(height_ + 40) +
                          R"(" font-family="sans-serif" font-size="12">)" + "\n" +
                          rectangle(0, 0, kLabels + kWidth + 2 * kMargin, height_ + 40, "#ffffff", "");
    picture += words(kMargin, 22, "GPUs of " + trace_.host + ", " + clock_text(from_, "%Y-%m-%d %H:%M:%S"),
                     R"(font-size="15" font-weight="bold")");
    picture += legend() + axis();
    double y = kHead;
    for (const auto& [gpu, tenants] : rows_) {
      picture += words(kMargin, y + 16, format_gpu(gpu), R"(font-weight="bold")");
      y += kRow;
      for (const TenantId tenant : tenants) {
        picture += row(tenant, gpu, y);
        y += kRow;
      }
      y += 8;
    }
    return picture + "</svg>\n";
  }

 private:
  double x_of(Nanoseconds moment) const {
    return kMargin + kLabels +
           kWidth * std::chrono::duration<double>(moment - from_) /
               std::chrono::duration<double>(to_ - from_);
  }

  static std::string colour_of(TenantId tenant) { return kColours[tenant.value % std::size(kColours)]; }

  static std::string legend() {
    std::string text;
    double x = kMargin + kLabels;
    for (const Look& look : kLooks) {
      text +=
          rectangle(x, 32 + look.top, 22, look.height, look.fill == nullptr ? kColours[0] : look.fill, "");
      text += words(x + 28, 47, look.name);
      x += 150;
    }
    return text;
  }

  std::string axis() const {
    std::string text;
    const Nanoseconds step = step_for(to_ - from_);
    const bool days = step >= std::chrono::hours(24);
    for (Nanoseconds mark = from_ - from_ % step + step; mark <= to_; mark += step) {
      const std::string x = number(x_of(mark));
      text += R"(<line x1=")" + x + R"(" x2=")" + x + R"(" y1=")" + number(kHead) + R"(" y2=")" +
              number(height_) + R"(" stroke="#dddddd"/>)" + "\n";
      text += words(x_of(mark), height_ + 18, clock_text(mark, days ? "%m-%d" : "%H:%M:%S"),
                    R"(text-anchor="middle" fill="#555555")");
    }
    return text;
  }

  std::string row(TenantId tenant, const GpuUuid& gpu, double y) const {
    const Trace::Tenant& who = trace_.tenants.at(tenant);
    std::string text = words(kMargin + 12, y + 15, who.label);
    for (const Look& look : kLooks) text += bars(tenant, gpu, y, look);
    return text;
  }

  // Draws the spans of one kind. Spans that the eye cannot tell apart become one bar.
  std::string bars(TenantId tenant, const GpuUuid& gpu, double y, const Look& look) const {
    std::string text;
    Span bar;
    unsigned spans = 0;
    const auto draw = [&] {
      if (spans == 0) return;
      const double x = x_of(bar.from);
      const double seconds = std::chrono::duration<double>(bar.to - bar.from).count();
      const std::string title = trace_.tenants.at(tenant).label + " " + look.name + " " +
                                clock_text(bar.from, "%H:%M:%S") + ", " + number(seconds) + " s" +
                                (spans > 1 ? ", " + std::to_string(spans) + " times" : "");
      text += rectangle(x, y + look.top, std::max(x_of(bar.to) - x, kFine), look.height,
                        look.fill == nullptr ? colour_of(tenant) : look.fill, title);
    };
    const auto own = spans_.find(tenant);
    if (own == spans_.end()) return text;
    for (const Span* each : own->second) {
      const Span& span = *each;
      if (span.kind != look.kind) continue;
      if (span.kind == SpanKind::lease && span.gpu != gpu) continue;
      if (spans > 0 && x_of(span.from) - x_of(bar.to) < kFine) {
        bar.to = std::max(bar.to, span.to);
        ++spans;
        continue;
      }
      draw();
      bar = span;
      spans = 1;
    }
    draw();
    return text;
  }

  const Trace& trace_;
  std::map<GpuUuid, std::vector<TenantId>> rows_;
  std::map<TenantId, std::vector<const Span*>> spans_;
  Nanoseconds from_{};
  Nanoseconds to_{};
  double height_ = 0;
};

}  // namespace

std::string trace_as_svg(const Trace& trace) { return Picture(trace).text(); }

}  // namespace sharedgpu::cli
