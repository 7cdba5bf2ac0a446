// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/top_view.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "config/quantities.h"

namespace sharedgpu::cli {
namespace {

using Tenant = NodeStatus::Tenant;

// Returns the number of code points. For the names of users and GPUs, this is close enough to the number of
// columns.
std::size_t length_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Cuts or fills the text to `width` characters. Replaces control characters, which would move the cursor.
std::string fit(std::string_view text, std::size_t width, bool right = false) {
  std::string result;
  std::size_t length = 0;
  for (const char c : text) {
    const bool begins = (c & 0xC0) != 0x80;
    if (begins && length == width) break;
    length += begins ? 1 : 0;
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    result += control ? '?' : c;
  }
  const std::string blanks(width - length, ' ');
  return right ? blanks + result : result + blanks;
}

// At most six characters: "512M", "1.5G".
std::string short_size(Bytes size) {
  static constexpr const char* kUnits[] = {"B", "K", "M", "G", "T"};
  if (size == Bytes{}) return "0";
  auto value = static_cast<double>(size.count);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, value < 9.95 && unit > 0 ? "%.1f%s" : "%.0f%s", value, kUnits[unit]);
  return text;
}

// "59.9s", "12m05s", "3h07m".
std::string short_time(double seconds) {
  char text[32];
  const long whole = std::lround(seconds);
  if (seconds < 99.95)
    std::snprintf(text, sizeof text, "%.1fs", seconds);
  else if (whole < 3600)
    std::snprintf(text, sizeof text, "%ldm%02lds", whole / 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
  return text;
}

std::string percent(double part) {
  char text[16];
  std::snprintf(text, sizeof text, "%.0f%%", 100 * part);
  return text;
}

double part_of(Bytes part, Bytes whole) {
  return whole == Bytes{} ? 0
                          : std::min(1.0, static_cast<double>(part.count) / static_cast<double>(whole.count));
}

// "[#####.....]", `width` characters wide.
std::string bar(double part, std::size_t width) {
  const std::size_t inner = width - 2;
  const auto full = static_cast<std::size_t>(std::lround(part * static_cast<double>(inner)));
  return "[" + std::string(full, '#') + std::string(inner - full, '.') + "]";
}

Ink ink_of_state(const std::string& state) {
  if (state == "running") return Ink::good;
  if (state == "entering" || state == "leaving") return Ink::busy;
  if (state == "waiting") return Ink::waiting;
  if (state == "stopped") return Ink::bad;
  return Ink::faint;
}

Ink ink_of(const Tenant& tenant) {
  return tenant.overdue || tenant.stuck ? Ink::bad : ink_of_state(tenant.state());
}

struct Column {
  const char* name;
  char key;
  const char* title;
  std::size_t width;
  bool right;
  int importance;   // on a narrow screen, columns with a higher number are left out first
  bool descending;  // sorted from the highest value down
  std::string (*text)(const TopRow&);
  bool (*less)(const TopRow&, const TopRow&);
};

template <auto Value>
bool less_by(const TopRow& a, const TopRow& b) {
  return Value(a) < Value(b);
}

constexpr Column kColumns[] = {
    {"tenant", 't', "TENANT", 14, false, 0, false, [](const TopRow& row) { return row.tenant->name; },
     less_by<[](const TopRow& row) { return row.tenant->id; }>},
    {"user", 'u', "USER", 9, false, 6, false, [](const TopRow& row) { return row.user; },
     less_by<[](const TopRow& row) { return row.user; }>},
    {"state", 's', "STATE", 8, false, 1, false, [](const TopRow& row) { return row.tenant->state(); },
     less_by<[](const TopRow& row) { return row.tenant->state(); }>},
    {"gpu", 'g', "GPU", 5, false, 8, false, [](const TopRow& row) { return row.gpus; },
     less_by<[](const TopRow& row) { return row.gpus; }>},
    {"queue", 'p', "Q", 2, true, 4, false,
     [](const TopRow& row) { return row.place == 0 ? std::string("-") : std::to_string(row.place); },
     // Tenants that wait come first.
     less_by<[](const TopRow& row) { return row.place - 1; }>},
    {"part", 'f', "ON THE GPU", 12, false, 9, true,
     [](const TopRow& row) { return bar(part_of(row.tenant->resident, row.tenant->footprint), 12); },
     less_by<[](const TopRow& row) { return part_of(row.tenant->resident, row.tenant->footprint); }>},
    {"resident", 'm', "RESID", 6, true, 2, true,
     [](const TopRow& row) { return short_size(row.tenant->resident); },
     less_by<[](const TopRow& row) { return row.tenant->resident; }>},
    {"allocated", 'a', "ALLOC", 6, true, 7, true,
     [](const TopRow& row) { return short_size(row.tenant->footprint); },
     less_by<[](const TopRow& row) { return row.tenant->footprint; }>},
    {"host", 'h', "HOST", 6, true, 13, true, [](const TopRow& row) { return short_size(row.tenant->host); },
     less_by<[](const TopRow& row) { return row.tenant->host; }>},
    {"away", 'y', "AWAY", 6, true, 15, true, [](const TopRow& row) { return short_size(row.tenant->away); },
     less_by<[](const TopRow& row) { return row.tenant->away; }>},
    {"busy", 'b', "GPU%", 5, true, 3, true, [](const TopRow& row) { return percent(row.busy); },
     less_by<[](const TopRow& row) { return row.busy; }>},
    {"wait", 'w', "WAIT%", 5, true, 5, true, [](const TopRow& row) { return percent(row.waiting); },
     less_by<[](const TopRow& row) { return row.waiting; }>},
    {"moved", 'v', "MOVE/s", 6, true, 10, true,
     [](const TopRow& row) { return short_size(Bytes{static_cast<std::uint64_t>(row.moved)}); },
     less_by<[](const TopRow& row) { return row.moved; }>},
    {"lease", 'l', "LEASE", 7, true, 11, true,
     [](const TopRow& row) { return short_time(row.tenant->lease_seconds); },
     less_by<[](const TopRow& row) { return row.tenant->lease_seconds; }>},
    {"waited", 'd', "WAITED", 7, true, 12, true,
     [](const TopRow& row) { return short_time(row.tenant->waited); },
     less_by<[](const TopRow& row) { return row.tenant->waited; }>},
    {"turns", 'n', "TURNS", 6, true, 14, true,
     [](const TopRow& row) { return std::to_string(row.tenant->handoffs); },
     less_by<[](const TopRow& row) { return row.tenant->handoffs; }>},
};

// The columns that fit into `width`, in the order of kColumns.
std::vector<const Column*> columns_for(int width) {
  std::vector<const Column*> fitting;
  for (const Column& column : kColumns) fitting.push_back(&column);
  const auto needed = [&] {
    std::size_t sum = 0;
    for (const Column* column : fitting) sum += column->width + 1;
    return sum - 1;
  };
  while (fitting.size() > 1 && needed() > static_cast<std::size_t>(std::max(width, 0)))
    fitting.erase(std::max_element(fitting.begin(), fitting.end(), [](const Column* a, const Column* b) {
      return a->importance < b->importance;
    }));
  return fitting;
}

// Cuts a line to `width` characters.
Line cut(const Line& line, int width) {
  Line result;
  auto left = static_cast<std::size_t>(std::max(width, 0));
  for (const Piece& piece : line) {
    const std::size_t length = std::min(length_of(piece.text), left);
    if (length > 0) result.push_back({fit(piece.text, length), piece.ink});
    left -= length;
  }
  return result;
}

std::string count(std::size_t number, const char* noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

double rate(double now, double before, double elapsed) {
  return elapsed > 0 && now > before ? (now - before) / elapsed : 0;
}

}  // namespace

std::string text_of(const Line& line) {
  std::string text;
  for (const Piece& piece : line) text += piece.text;
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

void Top::take(const NodeStatus& status, double at) {
  if (now_) {
    before_ = std::move(now_);
    elapsed_ = at - at_;
  }
  now_ = status;
  at_ = at;
  failure_.clear();
}

bool Top::sort_by(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kColumns); ++i)
    if (kColumns[i].name == name) {
      column_ = i;
      reversed_ = false;
      return true;
    }
  return false;
}

std::string Top::columns() {
  std::string names;
  for (const Column& column : kColumns) names += (names.empty() ? "" : ", ") + std::string(column.name);
  return names;
}

bool Top::press(int key) {
  const bool helped = std::exchange(helps_, false);
  switch (key) {
    case 'q':
    case 'Q':
      return false;
    case '?':
      helps_ = !helped;
      return true;
    case 'o':
      mine_ = !mine_;
      first_ = 0;
      return true;
    case 'r':
      reversed_ = !reversed_;
      return true;
    case '<':
      column_ = (column_ + std::size(kColumns) - 1) % std::size(kColumns);
      reversed_ = false;
      return true;
    case '>':
      column_ = (column_ + 1) % std::size(kColumns);
      reversed_ = false;
      return true;
    case static_cast<int>(TopKey::up):
      first_ -= std::min<std::size_t>(first_, 1);
      return true;
    case static_cast<int>(TopKey::down):
      first_ += 1;
      return true;
    case static_cast<int>(TopKey::page_up):
      first_ -= std::min(first_, room_);
      return true;
    case static_cast<int>(TopKey::page_down):
      first_ += room_;
      return true;
    case static_cast<int>(TopKey::home):
      first_ = 0;
      return true;
    case static_cast<int>(TopKey::end):
      first_ = rows().size();
      return true;
    default:
      break;
  }
  for (const Column& column : kColumns)
    if (column.key == key) {
      reversed_ = &column == &kColumns[column_] && !reversed_;
      column_ = static_cast<std::size_t>(&column - kColumns);
    }
  return true;
}

std::vector<TopRow> Top::rows() const {
  std::vector<TopRow> rows;
  if (!now_) return rows;
  for (const Tenant& tenant : now_->tenants) {
    if (mine_ && tenant.uid != uid_) continue;
    TopRow row{.tenant = &tenant, .user = name_(tenant.uid), .gpus = {}};
    for (const NodeStatus::Gpu& gpu : now_->gpus) {
      if (std::find(tenant.gpus.begin(), tenant.gpus.end(), gpu.uuid) == tenant.gpus.end()) continue;
      row.gpus += (row.gpus.empty() ? "" : ",") + std::to_string(gpu.number);
      const auto place = std::find(gpu.queue.begin(), gpu.queue.end(), tenant.id);
      if (place != gpu.queue.end())
        row.place = std::max(row.place, static_cast<std::size_t>(place - gpu.queue.begin()) + 1);
    }
    if (const Tenant* was = before_ ? before_->find(tenant.id) : nullptr) {
      row.busy = rate(tenant.lease_seconds, was->lease_seconds, elapsed_);
      row.waiting = rate(tenant.waited, was->waited, elapsed_);
      row.moved = rate(static_cast<double>((tenant.evicted + tenant.restored).count),
                       static_cast<double>((was->evicted + was->restored).count), elapsed_);
    }
    rows.push_back(std::move(row));
  }
  const Column& column = kColumns[column_];
  std::stable_sort(rows.begin(), rows.end(), [&](const TopRow& a, const TopRow& b) {
    return column.descending != reversed_ ? column.less(b, a) : column.less(a, b);
  });
  return rows;
}

Line Top::summary(std::string_view clock) const {
  Line line = {{"sharedgpu top", Ink::strong}};
  line.push_back({(host_.empty() ? "" : " on " + host_) + "  " + std::string(clock) + "  "});
  if (!failure_.empty()) {
    line.push_back({failure_, Ink::bad});
    return line;
  }
  if (!now_) return line;
  const auto tenants_in = [&](const char* state) {
    return std::to_string(std::count_if(now_->tenants.begin(), now_->tenants.end(),
                                        [&](const Tenant& tenant) { return tenant.state() == state; }));
  };
  line.push_back({count(now_->gpus.size(), "GPU") + ", " + count(now_->tenants.size(), "tenant") + ": " +
                  tenants_in("running") + " running, " + tenants_in("waiting") + " waiting"});
  if (mine_) line.push_back({"  (only yours are listed)", Ink::strong});
  if (now_->recovering) line.push_back({"  (the arbiter has just started)", Ink::busy});
  return line;
}

// Two lines for a GPU: its memory, and the tenants that have it.
void Top::add_gpus(int width, std::vector<Line>& lines) const {
  const bool wide = width >= 100;
  for (const NodeStatus::Gpu& gpu : now_->gpus) {
    Line line = {{fit("GPU " + std::to_string(gpu.number), 6), Ink::strong}};
    if (gpu.condition != "healthy")
      line.push_back({" " + gpu.condition + (gpu.fault.empty() ? "" : ": " + gpu.fault), Ink::bad});
    if (gpu.drained) line.push_back({" drained", Ink::bad});
    line.push_back({" " + bar(part_of(gpu.resident, gpu.capacity), wide ? 42 : 22), Ink::good});
    line.push_back({" " + format_size(gpu.resident) + " of " + format_size(gpu.capacity)});
    line.push_back({", allocated " + format_size(gpu.footprint),
                    gpu.footprint > gpu.capacity ? Ink::waiting : Ink::plain});
    if (gpu.unmanaged && *gpu.unmanaged > Bytes{})
      line.push_back({", unmanaged " + format_size(*gpu.unmanaged), Ink::bad});
    if (wide) line.push_back({"  " + gpu.name + ", " + gpu.policy, Ink::faint});
    lines.push_back(cut(line, width));

    Line turn = {{"       "}};
    std::string holders;
    for (const std::uint64_t id : gpu.holders)
      if (const Tenant* tenant = now_->find(id))
        holders += (holders.empty() ? "" : ", ") + tenant->name + " (" + name_(tenant->uid) + ")";
    if (const std::size_t hidden = gpu.hidden_holders())
      holders += (holders.empty() ? "" : ", ") + hidden_jobs(hidden);
    turn.push_back({holders.empty() ? "nobody" : holders, holders.empty() ? Ink::faint : Ink::good});
    turn.push_back({gpu.holders.size() < 2 ? " has it" : " have it"});
    if (gpu.turn_left)
      turn.push_back({*gpu.turn_left > 0 ? ", for another " + short_time(*gpu.turn_left) : ", turn over"});
    if (!gpu.queue.empty())
      turn.push_back({", " + std::to_string(gpu.queue.size()) + (gpu.queue.size() == 1 ? " waits" : " wait"),
                      Ink::waiting});
    turn.push_back({"; turns " + short_time(gpu.turn), Ink::faint});
    if (gpu.handoff > 0) turn.push_back({", handoffs " + short_time(gpu.handoff), Ink::faint});
    lines.push_back(cut(turn, width));
  }
}

Line Top::header(int width) const {
  Line line;
  std::size_t used = 0;
  for (const Column* column : columns_for(width)) {
    if (!line.empty()) line.push_back({" ", Ink::head});
    const bool sorted = column == &kColumns[column_];
    line.push_back({fit(column->title, column->width, column->right), sorted ? Ink::strong : Ink::head});
    used += column->width + (used > 0 ? 1 : 0);
  }
  if (used < static_cast<std::size_t>(std::max(width, 0)))
    line.push_back({std::string(static_cast<std::size_t>(width) - used, ' '), Ink::head});
  return cut(line, width);
}

Line Top::line_of(const TopRow& row, int width) const {
  Line line;
  for (const Column* column : columns_for(width)) {
    if (!line.empty()) line.push_back({" "});
    const bool shows_state =
        std::string_view(column->name) == "state" || std::string_view(column->name) == "part";
    line.push_back({fit(column->text(row), column->width, column->right),
                    shows_state ? ink_of(*row.tenant) : Ink::plain});
  }
  if (row.tenant->overdue)
    line.push_back({"  others wait since " + short_time(row.tenant->overdue->seconds), Ink::bad});
  if (row.tenant->stuck) line.push_back({"  cannot evict", Ink::bad});
  return cut(line, width);
}

std::vector<Line> Top::help() const {
  std::vector<Line> lines = {
      {{"q quit   o own tenants or all   r reverse   < > sort by the column before, after"}},
      {{"arrows, Page Up, Page Down, Home, End: scroll   ? this page"}},
      {{""}},
      {{"Sort by:", Ink::strong}}};
  for (const Column& column : kColumns)
    lines.push_back({{std::string("  ") + column.key + "  " + fit(column.name, 10) + column.title}});
  return lines;
}

std::vector<Line> Top::screen(int width, int height, std::string_view clock) {
  std::vector<Line> lines = {cut(summary(clock), width)};
  if (helps_) {
    for (const Line& line : help()) lines.push_back(cut(line, width));
  } else if (now_) {
    add_gpus(width, lines);
    lines.push_back(header(width));
    const std::vector<TopRow> all = rows();
    const auto used = static_cast<int>(lines.size());
    room_ = static_cast<std::size_t>(std::max(height - used, 1));
    first_ = std::min(first_, all.size() - std::min(all.size(), room_));
    for (std::size_t i = first_; i < all.size() && i < first_ + room_; ++i)
      lines.push_back(line_of(all[i], width));
  }
  if (lines.size() > static_cast<std::size_t>(std::max(height, 0)))
    lines.resize(static_cast<std::size_t>(std::max(height, 0)));
  return lines;
}

std::vector<Line> Top::batch(int width, std::string_view clock) const {
  std::vector<Line> lines = {summary(clock)};
  if (!now_) return lines;
  add_gpus(width, lines);
  lines.push_back(header(width));
  for (const TopRow& row : rows()) lines.push_back(line_of(row, width));
  return lines;
}

nlohmann::ordered_json Top::json() const {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson tenants = OrderedJson::array();
  for (const TopRow& row : rows())
    tenants.push_back({{"id", row.tenant->id},
                       {"name", row.tenant->name},
                       {"user", row.user},
                       {"state", row.tenant->state()},
                       {"place", row.place == 0 ? OrderedJson(nullptr) : OrderedJson(row.place)},
                       {"resident_bytes", row.tenant->resident.count},
                       {"footprint_bytes", row.tenant->footprint.count},
                       {"host_bytes", row.tenant->host.count},
                       {"away_bytes", row.tenant->away.count},
                       {"busy", row.busy},
                       {"waiting", row.waiting},
                       {"moved_bytes_per_second", row.moved},
                       {"lease_seconds", row.tenant->lease_seconds},
                       {"waited_seconds", row.tenant->waited}});
  OrderedJson gpus = OrderedJson::array();
  if (now_)
    for (const NodeStatus::Gpu& gpu : now_->gpus)
      gpus.push_back(
          {{"number", gpu.number},
           {"uuid", gpu.uuid},
           {"capacity_bytes", gpu.capacity.count},
           {"footprint_bytes", gpu.footprint.count},
           {"resident_bytes", gpu.resident.count},
           {"holders", gpu.holders},
           {"queue", gpu.queue},
           {"turn_left_seconds", gpu.turn_left ? OrderedJson(*gpu.turn_left) : OrderedJson(nullptr)}});
  return {{"seconds", elapsed_}, {"gpus", gpus}, {"tenants", tenants}};
}

}  // namespace sharedgpu::cli
