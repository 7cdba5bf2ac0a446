// SPDX-License-Identifier: Apache-2.0
// The functions that libstdc++ calls to report an error. The definitions here end the process, since nothing
// in this library throws or catches. libstdc++'s own definitions would bring three things into every program
// of a job: libstdc++'s exceptions, a memory pool for exceptions that is allocated when the library is
// loaded, and 300 relocations.
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>

// The definitions below are weak. If another part of libstdc++ brings the original functions after all, the
// linker uses the original functions. check_constructors.sh reports this fault.
#define INSTEAD __attribute__((weak))

namespace {

[[noreturn]] void give_up(const char* what) {
  for (const char* part : {"sharedgpu: ", what, "\n"}) {
    [[maybe_unused]] ssize_t written = write(STDERR_FILENO, part, std::strlen(part));
  }
  std::abort();
}

void* or_give_up(void* block) {
  if (block == nullptr) give_up("the process has no memory left");
  return block;
}

}  // namespace

INSTEAD void* operator new(std::size_t size) { return or_give_up(std::malloc(size != 0 ? size : 1)); }
INSTEAD void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto step = static_cast<std::size_t>(alignment);
  return or_give_up(std::aligned_alloc(step, (size + step - 1) / step * step));
}
INSTEAD void operator delete(void* block) noexcept { std::free(block); }
INSTEAD void operator delete(void* block, std::size_t) noexcept { std::free(block); }
INSTEAD void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
INSTEAD void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }

// Called for each frame of libstdc++ when a thread is cancelled. No frame of libstdc++ has anything to clean
// up.
extern "C" int __gxx_personality_v0();
INSTEAD int __gxx_personality_v0() { return 8; }  // _URC_CONTINUE_UNWIND

// Guards of static variables in functions: the first byte is set once the variable is constructed, and the
// second byte while it is being constructed.
extern "C" int __cxa_guard_acquire(std::uint64_t* guard);
INSTEAD int __cxa_guard_acquire(std::uint64_t* guard) {
  auto* const bytes = reinterpret_cast<unsigned char*>(guard);
  for (;;) {
    if (__atomic_load_n(&bytes[0], __ATOMIC_ACQUIRE) != 0) return 0;
    if (__atomic_exchange_n(&bytes[1], 1, __ATOMIC_ACQUIRE) == 0) break;
    sched_yield();
  }
  if (__atomic_load_n(&bytes[0], __ATOMIC_ACQUIRE) == 0) return 1;
  __atomic_store_n(&bytes[1], 0, __ATOMIC_RELEASE);  // another thread has constructed the variable meanwhile
  return 0;
}
extern "C" void __cxa_guard_release(std::uint64_t* guard);
INSTEAD void __cxa_guard_release(std::uint64_t* guard) {
  auto* const bytes = reinterpret_cast<unsigned char*>(guard);
  __atomic_store_n(&bytes[0], 1, __ATOMIC_RELEASE);
  __atomic_store_n(&bytes[1], 0, __ATOMIC_RELEASE);
}

extern "C" void __cxa_pure_virtual();
INSTEAD void __cxa_pure_virtual() { give_up("a call to an object that no longer exists"); }

namespace std {

INSTEAD void terminate() noexcept { give_up("terminated"); }

// libstdc++ asks this function, if there is no RTTI, whether a requested deleter is the one of make_shared().
// Before that, libstdc++ compares the addresses of the types, which suffices within one library. So the
// answer here is always false.
INSTEAD bool _Sp_make_shared_tag::_S_eq(const type_info&) noexcept { return false; }

#define FAILURE(name, ...) \
  INSTEAD void __throw_##name(__VA_ARGS__) { give_up(#name); }
FAILURE(bad_exception)
FAILURE(bad_alloc)
FAILURE(bad_array_new_length)
FAILURE(bad_cast)
FAILURE(bad_typeid)
FAILURE(bad_function_call)
FAILURE(bad_optional_access)
FAILURE(bad_variant_access, const char*)
FAILURE(logic_error, const char*)
FAILURE(domain_error, const char*)
FAILURE(invalid_argument, const char*)
FAILURE(length_error, const char*)
FAILURE(out_of_range, const char*)
FAILURE(out_of_range_fmt, const char*, ...)
FAILURE(runtime_error, const char*)
FAILURE(range_error, const char*)
FAILURE(overflow_error, const char*)
FAILURE(underflow_error, const char*)
FAILURE(system_error, int)

}  // namespace std
