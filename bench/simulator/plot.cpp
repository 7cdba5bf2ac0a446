// SPDX-License-Identifier: Apache-2.0
#include "bench/simulator/plot.h"

#include <algorithm>
#include <cstdio>

namespace sharedgpu {
namespace {

constexpr double kLeft = 60;
constexpr double kWidth = 900;
constexpr double kHeight = 200;
constexpr double kPitch = 280;  // distance between panels
constexpr std::size_t kNamed = 24;
// The colours also differ in lightness, for readers who cannot distinguish hues.
constexpr const char* kColours[] = {"#1f5fa8", "#e0a030", "#208060", "#c06090", "#70b0e0", "#805020"};
constexpr const char* kMissed = "#c02020";

template <class... Numbers>
std::string format(const char* how, Numbers... numbers) {
  char text[256];
  std::snprintf(text, sizeof text, how, numbers...);
  return text;
}

double in_seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }
const char* colour_of(std::size_t program) { return kColours[program % std::size(kColours)]; }

std::string words(double x, double y, const std::string& what, const char* more = "") {
  return format("<text x=\"%.1f\" y=\"%.1f\" font-size=\"12\" %s>", x, y, more) + what + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const char* colour) {
  return format(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"0.7\"/>\n", x1, y1,
      x2, y2, colour);
}

// A panel with curves of percentages over time.
struct Panel {
  double top;
  double seconds;
  double x(double at) const { return kLeft + kWidth * at / seconds; }
  double y(double part) const { return top + kHeight * (1 - std::clamp(part, 0.0, 1.0)); }

  std::string frame(const std::string& title) const {
    std::string svg = words(kLeft, top - 10, title, "font-weight=\"bold\"");
    for (const double part : {0.0, 0.5, 1.0})
      svg += line(kLeft, y(part), kLeft + kWidth, y(part), "#d0d0d0") +
             words(kLeft - 6, y(part) + 4, format("%.0f%%", 100 * part), "text-anchor=\"end\"");
    for (int i = 0; i <= 10; ++i)
      svg += words(x(seconds * i / 10), top + kHeight + 16, format("%.4g s", seconds * i / 10),
                   "text-anchor=\"middle\"");
    return svg;
  }
  template <class Value>
  std::string curve(std::size_t points, std::size_t program, Value value) const {
    std::string svg = "<polyline points=\"";
    for (std::size_t i = 1; i < points; ++i) {
      const auto [at, part] = value(i);
      svg += format("%.1f,%.1f ", x(at), y(part));
    }
    return svg + format("\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", colour_of(program));
  }
};

}  // namespace

// Returns the length of the time axis: `length_`, or less if the simulation ended earlier.
double Plot::seconds() const {
  const Nanoseconds last = moments_.empty() ? Nanoseconds{} : moments_.back().at;
  return in_seconds(last + 2 * interval_ > length_ ? length_ : last);
}

std::string Plot::svg(const std::string& title) const {
  const std::size_t programs = moments_.empty() ? 0 : moments_.front().points.size();
  const bool bounded = std::any_of(moments_.begin(), moments_.end(), [](const Moment& moment) {
    return std::any_of(moment.points.begin(), moment.points.end(),
                       [](const Point& point) { return point.part < 1 || point.missed > 0; });
  });
  const Panel leases{60, seconds()};
  const Panel most{60 + kPitch, seconds()};
  const double foot = 60 + (bounded ? 2 : 1) * kPitch;
  std::string body = words(8, 24, title, "font-weight=\"bold\"") +
                     leases.frame("part of the time in which each program had a lease");
  if (bounded) body += most.frame("most of the time that each program may have; red: a deadline was missed");
  for (std::size_t program = 0; program < programs; ++program) {
    body += leases.curve(moments_.size(), program, [&](std::size_t i) {
      const Moment& before = moments_[i - 1];
      const Moment& after = moments_[i];
      const Nanoseconds had = after.points[program].lease - before.points[program].lease;
      return std::pair(in_seconds(after.at), in_seconds(had) / in_seconds(after.at - before.at));
    });
    if (bounded)
      body += most.curve(moments_.size(), program, [&](std::size_t i) {
        return std::pair(in_seconds(moments_[i].at), moments_[i].points[program].part);
      });
    for (std::size_t i = 1; i < moments_.size(); ++i)
      if (moments_[i].points[program].missed > moments_[i - 1].points[program].missed)
        body += line(most.x(in_seconds(moments_[i].at)), most.top, most.x(in_seconds(moments_[i].at)),
                     most.top + kHeight, kMissed);
    if (program < kNamed)
      body +=
          words(kLeft + 75 * static_cast<double>(program % 12), foot + 18 * static_cast<double>(program / 12),
                format("program %zu", program + 1), format("fill=\"%s\"", colour_of(program)).c_str());
  }
  return format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1000 %.0f\" "
             "font-family=\"sans-serif\">\n"
             "<rect width=\"1000\" height=\"%.0f\" fill=\"#ffffff\"/>\n",
             foot + 40, foot + 40) +
         body + "</svg>\n";
}

}  // namespace sharedgpu
