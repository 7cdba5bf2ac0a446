// SPDX-License-Identifier: Apache-2.0
// dlsym, through which most programs reach the driver and NVML.
//
// glibc's dlsym identifies its caller by the return address, for RTLD_NEXT and RTLD_DEFAULT. So our dlsym is
// a few instructions that choose a function and jump to it, leaving the caller's own return address in place.
// For a name that has a wrapper, these instructions choose dlsym_driver() or dlsym_next(). They choose
// glibc's dlsym for all other names, and for RTLD_NEXT if the next definition is not our export.
#include <dlfcn.h>
#include <link.h>

#include <cstdint>

#include "interposer/doors/substitute.h"
#include "interposer/driver/real.h"
#include "interposer/hooks/export.h"

using namespace sharedgpu;
using driver::Dlsym;

namespace {

// Called if `name` has a wrapper and `handle` is not RTLD_NEXT. The real dlsym is called first, since the
// name may belong to another library, or be missing in this driver.
void* dlsym_driver(void* handle, const char* name) {
  driver::Function function = *driver::find(name);
  void* ours = doors::wrapper(function);
  void* found = driver::real_dlsym()(handle, name);
  if (found == nullptr) return nullptr;
  if (found != ours) return found == driver::real_if_loaded(function) ? ours : found;
  // The search has found our own export, since our library is loaded before the driver. Without our library,
  // the search would find the driver's export if the driver is loaded.
  if (driver::real_if_loaded(function) != nullptr) return ours;
  // Volatile prevents a tail call: glibc must see our library as the caller that asks for the next
  // definition.
  void* volatile next = driver::real_dlsym()(RTLD_NEXT, name);
  return next;
}

// Replaces dlsym(RTLD_NEXT, name) if the search would find our own export, because the caller precedes our
// library in the search order. Continues the search after our library.
void* dlsym_next(void* /*handle*/, const char* name) {
  driver::Function function = *driver::find(name);
  void* real = driver::real_if_loaded(function);
  void* volatile next = driver::real_dlsym()(RTLD_NEXT, name);
  return next != nullptr && next == real ? doors::wrapper(function) : next;
}

// A loaded object, identified by its position in the list of loaded objects. The objects that the program
// started with come first, in search order.
struct Object {
  const void* address = nullptr;  // an address in the object; null to look up the object at position `place`
  int place = -1;
  const char* name = nullptr;
  int seen = 0;
};

int look_at(dl_phdr_info* info, std::size_t /*size*/, void* data) {
  auto& wanted = *static_cast<Object*>(data);
  const int place = wanted.seen++;
  bool found = wanted.address == nullptr && place == wanted.place;
  for (int i = 0; i < info->dlpi_phnum && wanted.address != nullptr; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const auto offset = reinterpret_cast<std::uintptr_t>(wanted.address) - info->dlpi_addr - segment.p_vaddr;
    found = found || (segment.p_type == PT_LOAD && offset < segment.p_memsz);
  }
  if (!found) return 0;
  wanted.place = place;
  wanted.name = info->dlpi_name;
  return 1;
}

int place_of(const void* address) {
  Object object{.address = address};
  dl_iterate_phdr(look_at, &object);
  return object.place;
}

const char* name_at(int place) {
  Object object{.place = place};
  dl_iterate_phdr(look_at, &object);
  return object.name;
}

// Returns true if the next definition of `name` after `caller` is our own export. This is so if the caller is
// the program or a library preloaded before ours, and if no object between `caller` and our library exports
// `name`.
bool comes_upon_us(const void* caller, const char* name) {
  const int ours = place_of(reinterpret_cast<void*>(&dlsym_next));
  const int from = place_of(caller);
  if (from < 0 || from >= ours) return false;
  for (int place = from + 1; place < ours; ++place) {
    // The handle is never closed, since objects that the program started with stay loaded anyway.
    void* between = dlopen(name_at(place), RTLD_LAZY | RTLD_NOLOAD);
    void* found = between != nullptr ? driver::real_dlsym()(between, name) : nullptr;
    if (found != nullptr && place_of(found) == place) return false;
  }
  return true;
}

}  // namespace

extern "C" __attribute__((visibility("hidden"), used)) Dlsym sharedgpu_choose_dlsym(void* handle,
                                                                                    const char* name,
                                                                                    const void* caller) {
  bool driver_name =
      name != nullptr && ((name[0] == 'c' && name[1] == 'u') ||
                          (name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l'));
  if (!driver_name) return driver::real_dlsym();
  auto function = driver::find(name);
  if (!function || doors::wrapper(*function) == nullptr) return driver::real_dlsym();
  if (handle != RTLD_NEXT) return dlsym_driver;
  return comes_upon_us(caller, name) ? dlsym_next : driver::real_dlsym();
}

#if defined(__x86_64__)
asm(R"(
  .pushsection .text
  .globl sharedgpu_dlsym
  .type sharedgpu_dlsym, @function
sharedgpu_dlsym:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movq 24(%rsp), %rdx
  call sharedgpu_choose_dlsym
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  jmp *%rax
  .cfi_endproc
  .size sharedgpu_dlsym, . - sharedgpu_dlsym
  .popsection
)");
#elif defined(__aarch64__)
asm(R"(
  .pushsection .text
  .globl sharedgpu_dlsym
  .type sharedgpu_dlsym, %function
sharedgpu_dlsym:
  .cfi_startproc
  stp x29, x30, [sp, #-32]!
  .cfi_adjust_cfa_offset 32
  stp x0, x1, [sp, #16]
  mov x2, x30
  bl sharedgpu_choose_dlsym
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_adjust_cfa_offset -32
  br x16
  .cfi_endproc
  .size sharedgpu_dlsym, . - sharedgpu_dlsym
  .popsection
)");
#else
#error "sharedgpu_dlsym has no assembly code for this processor: add it above"
#endif

// exports.map exports dlsym with the symbol versions of glibc.
#if defined(__x86_64__)
#define FIRST_GLIBC "GLIBC_2.2.5"
#else
#define FIRST_GLIBC "GLIBC_2.17"
#endif
asm(R"(
  .globl sharedgpu_dlsym_first
  .set sharedgpu_dlsym_first, sharedgpu_dlsym
  .symver sharedgpu_dlsym_first, dlsym@)" FIRST_GLIBC R"(
  .symver sharedgpu_dlsym, dlsym@@GLIBC_2.34
)");
