// SPDX-License-Identifier: Apache-2.0
#include "interposer/driver/musl.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace sharedgpu::driver {
namespace {

// The tables of a loaded object. The dynamic section states the addresses of these tables relative to the
// object: unlike glibc, musl does not replace them by absolute addresses.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const std::uint32_t* hashes = nullptr;  // DT_GNU_HASH
};

Tables tables_of(const dl_phdr_info& object) {
  Tables tables;
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    if (object.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const ElfW(Addr) base = object.dlpi_addr;
    for (auto* entry = reinterpret_cast<const ElfW(Dyn)*>(base + object.dlpi_phdr[i].p_vaddr);
         entry->d_tag != DT_NULL; ++entry) {
      const ElfW(Addr) address = base + entry->d_un.d_ptr;
      if (entry->d_tag == DT_SYMTAB) tables.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
      if (entry->d_tag == DT_STRTAB) tables.names = reinterpret_cast<const char*>(address);
      if (entry->d_tag == DT_GNU_HASH) tables.hashes = reinterpret_cast<const std::uint32_t*>(address);
    }
  }
  return tables;
}

std::uint32_t gnu_hash(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

// Finds a symbol through the table DT_GNU_HASH. This table has the number of buckets, the number of symbols
// before the first hashed symbol, the number of words in the Bloom filter, a shift, the filter, the buckets,
// and the hashes of the symbols. The lowest bit of a hash is set if the symbol is the last one of its bucket.
const ElfW(Sym) * find(const Tables& tables, const char* name) {
  const std::uint32_t buckets = tables.hashes[0];
  const std::uint32_t first = tables.hashes[1];
  const std::uint32_t* bucket =
      tables.hashes + 4 + tables.hashes[2] * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  const std::uint32_t* hash = bucket + buckets;
  std::uint32_t index = buckets == 0 ? 0 : bucket[gnu_hash(name) % buckets];
  for (; index >= first && index != 0; ++index) {
    const ElfW(Sym)& symbol = tables.symbols[index];
    if (symbol.st_shndx != SHN_UNDEF && std::strcmp(tables.names + symbol.st_name, name) == 0) return &symbol;
    if ((hash[index - first] & 1) != 0) break;
  }
  return nullptr;
}

struct Search {
  const char* name;
  void* found;
};

// Searches the object if it is musl, a single object that is both the loader and the C library:
// /lib/ld-musl-x86_64.so.1.
int look_at(dl_phdr_info* object, std::size_t /*size*/, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (object->dlpi_name == nullptr || std::strstr(object->dlpi_name, "ld-musl-") == nullptr) return 0;
  const Tables tables = tables_of(*object);
  if (tables.symbols == nullptr || tables.names == nullptr || tables.hashes == nullptr) return 0;
  const ElfW(Sym)* symbol = find(tables, search.name);
  if (symbol != nullptr) search.found = reinterpret_cast<void*>(object->dlpi_addr + symbol->st_value);
  return 1;
}

}  // namespace

void* find_in_musl(const char* name) {
  Search search = {.name = name, .found = nullptr};
  dl_iterate_phdr(look_at, &search);
  return search.found;
}

}  // namespace sharedgpu::driver
