// SPDX-License-Identifier: Apache-2.0
// Uses CUDA before main() and after it: in constructors and destructors of static objects, in atexit
// handlers, and in destructors at the end of a thread. At the end the driver may be shut down and return
// errors, but results must never be wrong.
#include <pthread.h>

#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

constexpr std::size_t kBytes = std::size_t{32} << 20;
constexpr unsigned char kValue = 0x5a;

// Called while the process exits: ends the process at once, since exit() must not be called again.
void require_late(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return;
  std::fprintf(stderr, "late: %s: error %d\n", what, static_cast<int>(result));
  _exit(kWrong);
}

class Early {
 public:
  Early() {
    context_ = start();
    check(cuMemAlloc(&memory_, kBytes), "cuMemAlloc");
    check(cuMemsetD8(memory_, kValue, kBytes), "cuMemsetD8");
  }
  ~Early() {
    unsigned char last = 0;
    CUresult result = cuMemcpyDtoH(&last, memory_ + kBytes - 1, 1);
    require_late(result, "a copy in a destructor");
    if (result == CUDA_SUCCESS && last != kValue) {
      std::fprintf(stderr, "late: wrong data in a destructor\n");
      _exit(kWrong);
    }
    require_late(cuMemFree(memory_), "cuMemFree in a destructor");
  }
  Early(const Early&) = delete;
  Early& operator=(const Early&) = delete;
  CUcontext context() const { return context_; }
  CUdeviceptr memory() const { return memory_; }

 private:
  CUcontext context_ = nullptr;
  CUdeviceptr memory_ = 0;
};

Early early;

void at_exit() {
  require_late(cuMemsetD8(early.memory(), kValue, kBytes), "cuMemsetD8 at exit");
  require_late(cuCtxSynchronize(), "cuCtxSynchronize at exit");
}

// Two destructors that run after the function of a thread has returned: first the destructor of a
// thread_local object, then the destructor of a pthread key.
struct WithThread {
  CUdeviceptr memory = 0;
  ~WithThread() { check(cuMemFree(memory), "cuMemFree in a thread_local's destructor"); }
};

void end_of_key(void* memory) {
  check(cuMemsetD8(reinterpret_cast<CUdeviceptr>(memory), 1, 16), "cuMemsetD8 in a key's destructor");
  check(cuMemFree(reinterpret_cast<CUdeviceptr>(memory)), "cuMemFree in a key's destructor");
}

void be_thread(pthread_key_t key) {
  static thread_local WithThread local;
  use(early.context());
  check(cuMemAlloc(&local.memory, kBytes), "cuMemAlloc");
  CUdeviceptr other = 0;
  check(cuMemAlloc(&other, kBytes), "cuMemAlloc");
  check(cuMemsetD8(other, 3, kBytes), "cuMemsetD8");
  pthread_setspecific(key, reinterpret_cast<void*>(other));
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Uses CUDA before main() and after it.");
  app.parse(argc, argv);
  if (std::atexit(at_exit) != 0) fail("atexit failed");
  pthread_key_t key;
  if (pthread_key_create(&key, end_of_key) != 0) fail("pthread_key_create failed");
  for (int i = 0; i < 8; ++i) std::thread(be_thread, key).join();
  exercise(kBytes, 1, 10);
  std::printf("late: main() is over\n");
  return 0;
}
