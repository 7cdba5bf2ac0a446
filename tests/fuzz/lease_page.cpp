// SPDX-License-Identifier: Apache-2.0
// Opens arbitrary files as a lease page. A file may be mapped only if it has the size, the magic number and
// the version of a lease page, and seals that keep its size.
#include "protocol/lease_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "input.h"
#include "protocol/channel.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  fuzz::Input in(data, size);
  const UniqueFd file(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool sized = !in.one_in(4);
  const bool sealed = !in.one_in(4);
  LeasePage page;
  if (in.one_in(2)) in.fill(&page, 2 * sizeof(std::uint32_t));
  const bool marked = page.magic == LeasePage::kMagic && page.version == LeasePage{}.version;
  const off_t length = sized ? LeasePage::kSize : off_t{in.byte()} * 64;
  fuzz::require(ftruncate(file.get(), length) == 0, "no memory");
  if (length > 0) {
    void* memory = mmap(nullptr, LeasePage::kSize, PROT_WRITE, MAP_SHARED, file.get(), 0);
    fuzz::require(memory != MAP_FAILED, "no mapping");
    if (length >= static_cast<off_t>(sizeof page)) std::memcpy(memory, &page, 2 * sizeof(std::uint32_t));
    munmap(memory, LeasePage::kSize);
  }
  if (sealed) fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  const LeasePage* mapped = map_lease_page(file.get(), nullptr);
  const bool good = length == LeasePage::kSize && sealed && marked;
  fuzz::require((mapped != nullptr) == good, "a page that is none is mapped, or one is not");
  if (mapped == nullptr) return 0;
  fuzz::require(mapped->magic == LeasePage::kMagic, "another page is mapped");
  munmap(const_cast<LeasePage*>(mapped), LeasePage::kSize);
  return 0;
}
