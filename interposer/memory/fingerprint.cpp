// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/fingerprint.h"

#include <sys/random.h>

#include "interposer/memory/fingerprint_field.h"

namespace sharedgpu::fingerprint {
namespace {

constexpr std::uint64_t kKeyMask = (1ull << 57) - 1;

template <std::size_t kRows, std::size_t kColumns>
void cut(std::uint64_t (&keys)[kRows][kColumns]) {
  for (auto& row : keys)
    for (std::uint64_t& key : row) key &= kKeyMask;
}

}  // namespace

bool draw(Key* key) {
  auto* const bytes = reinterpret_cast<std::byte*>(key);
  for (std::size_t done = 0; done < sizeof *key;) {
    const ssize_t got = getrandom(bytes + done, sizeof *key - done, GRND_NONBLOCK);
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  cut(key->kernel.tiles);
  cut(key->kernel.lanes);
  cut(key->kernel.warps);
  cut(key->parts);
  return true;
}

std::optional<Fingerprint> combine(const Key& key, const Part* parts, Bytes size, std::uint64_t stamp) {
  Fingerprint all{.hash = {}, .uniform = true, .value = parts[0].first};
  for (std::uint64_t i = 0; i < parts_in(size); ++i) {
    if (parts[i].stamp != stamp) return std::nullopt;
    all.uniform &= parts[i].differs == 0;
    for (unsigned half = 0; half < 2; ++half)
      all.hash[half] = canonical(fold(all.hash[half] + times(parts[i].hash[half], key.parts[i][half])));
  }
  return all;
}

}  // namespace sharedgpu::fingerprint
