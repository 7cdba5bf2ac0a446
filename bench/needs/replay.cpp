// SPDX-License-Identifier: Apache-2.0
#include "bench/needs/replay.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "interposer/oversize/exchange_plan.h"

namespace sharedgpu::needs {

Moved with_plans(const Trace& trace, Bytes window, Bytes most) {
  NeedOrder order;
  std::vector<Candidate> handles;
  std::map<std::uint64_t, std::size_t> index;
  Bytes free = window;
  Moved moved;
  for (std::size_t i = 0; i < trace.needs.size(); ++i) {
    const Need& need = trace.needs[i];
    const auto [found, is_new] = index.emplace(need.handle, handles.size());
    if (is_new) handles.push_back({need.handle, need.size, false});
    order.note(need.handle);
    if (handles[found->second].on_gpu) continue;
    const std::uint64_t needed[] = {need.handle};
    const Plan made = plan(order, handles, needed, free, most);
    Bytes bytes;
    const auto move = [&](std::uint64_t handle, bool in) {
      Candidate& each = handles[index.at(handle)];
      each.on_gpu = in;
      free = in ? free - each.size : free + each.size;
      bytes += each.size;
    };
    for (const std::uint64_t each : made.out) move(each, false);
    for (const std::uint64_t each : made.in) move(each, true);
    if (i < trace.learned) continue;
    moved.bytes += bytes;
    ++moved.exchanges;
  }
  return moved;
}

Moved least_recently_used(const Trace& trace, Bytes window) {
  std::map<std::uint64_t, std::size_t> last;  // for each handle on the GPU: the index of its last need
  std::set<std::pair<std::size_t, std::size_t>> used;  // the values of `last`, sorted
  Bytes free = window;
  Moved moved;
  for (std::size_t i = 0; i < trace.needs.size(); ++i) {
    const Need& need = trace.needs[i];
    if (need.size > window) continue;
    Bytes bytes;
    const auto found = last.find(need.handle);
    if (found != last.end()) {
      used.erase({found->second, found->second});
    } else {
      while (free < need.size) {
        const Need& victim = trace.needs[used.begin()->first];
        used.erase(used.begin());
        last.erase(victim.handle);
        free += victim.size;
        bytes += victim.size;
      }
      free -= need.size;
      bytes += need.size;
    }
    last[need.handle] = i;
    used.insert({i, i});
    if (i < trace.learned || bytes.count == 0) continue;
    moved.bytes += bytes;
    ++moved.exchanges;
  }
  return moved;
}

Moved optimum(const Trace& trace, Bytes window) {
  const std::size_t count = trace.needs.size();
  std::vector<std::size_t> next(count, count);  // for each need, the index of the handle's next need
  std::map<std::uint64_t, std::size_t> seen;
  for (std::size_t i = count; i-- > 0;) {
    const auto [found, is_last] = seen.emplace(trace.needs[i].handle, i);
    next[i] = is_last ? count + i : found->second;
    found->second = i;
  }
  std::map<std::size_t, std::pair<std::uint64_t, Bytes>>
      present;  // key: index of the handle's next need; value: the handle, and its bytes on the GPU
  Bytes free = window;
  Moved moved;
  for (std::size_t i = 0; i < count; ++i) {
    const Need& need = trace.needs[i];
    if (need.size > window) continue;
    Bytes here;
    if (const auto found = present.find(i); found != present.end()) {
      here = found->second.second;
      present.erase(found);
    }
    const Bytes missing = need.size - here;
    Bytes bytes = missing;
    while (free < missing) {
      const auto victim = std::prev(present.end());
      Bytes& its = victim->second.second;
      const Bytes part = std::min(its, missing - free);
      its -= part;
      free += part;
      bytes += part;
      if (its.count == 0) present.erase(victim);
    }
    free -= missing;
    present[next[i]] = {need.handle, need.size};
    if (i < trace.learned || bytes.count == 0) continue;
    moved.bytes += bytes;
    ++moved.exchanges;
  }
  return moved;
}

}  // namespace sharedgpu::needs
