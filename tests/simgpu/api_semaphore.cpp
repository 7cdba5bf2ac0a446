// SPDX-License-Identifier: Apache-2.0
// External semaphores, by which streams and another interface (Vulkan) wait for each other.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/simgpu/api.h"
#include "tests/simgpu/work.h"

using namespace sharedgpu;
using namespace sharedgpu::simgpu;

Semaphore::Semaphore(int file) {
  struct stat info = {};
  require(fstat(file, &info) == 0 && info.st_size >= static_cast<off_t>(sizeof *value_),
          CUDA_ERROR_INVALID_HANDLE);
  void* mapped = mmap(nullptr, sizeof *value_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  require(mapped != MAP_FAILED, CUDA_ERROR_INVALID_HANDLE);
  value_ = static_cast<std::uint64_t*>(mapped);
}

Semaphore::~Semaphore() { munmap(value_, sizeof *value_); }

namespace {

template <class Parameters>
std::vector<SemaphoreValue> values_of(const CUexternalSemaphore* handles, const Parameters* parameters,
                                      unsigned count) {
  require(count == 0 || (handles != nullptr && parameters != nullptr), CUDA_ERROR_INVALID_VALUE);
  std::vector<SemaphoreValue> values;
  for (unsigned i = 0; i < count; ++i)
    values.push_back({driver().semaphores.get(handles[i]), parameters[i].params.fence.value});
  return values;
}

CUresult signal(DefaultStream zero, const CUexternalSemaphore* handles,
                const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* parameters, unsigned count, CUstream stream) {
  return call("cuSignalExternalSemaphoresAsync", Needs::context,
              [&] { submit(find_stream(zero, stream), signal_work(values_of(handles, parameters, count))); });
}

CUresult wait_for(DefaultStream zero, const CUexternalSemaphore* handles,
                  const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* parameters, unsigned count, CUstream stream) {
  return call("cuWaitExternalSemaphoresAsync", Needs::context, [&] {
    submit(find_stream(zero, stream), semaphore_wait_work(values_of(handles, parameters, count)));
  });
}

}  // namespace

#undef cuSignalExternalSemaphoresAsync
#undef cuWaitExternalSemaphoresAsync

extern "C" {

// After a successful call, the driver owns the descriptor.
CUresult CUDAAPI cuImportExternalSemaphore(CUexternalSemaphore* out,
                                           const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* wanted) {
  return call("cuImportExternalSemaphore", Needs::context, [&] {
    require(out != nullptr && wanted != nullptr && wanted->flags == 0, CUDA_ERROR_INVALID_VALUE);
    require(wanted->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
            CUDA_ERROR_NOT_SUPPORTED);
    auto semaphore = std::make_shared<Semaphore>(wanted->handle.fd);
    close(wanted->handle.fd);
    *out = reinterpret_cast<CUexternalSemaphore>(driver().semaphores.add(semaphore));
  });
}

CUresult CUDAAPI cuDestroyExternalSemaphore(CUexternalSemaphore handle) {
  return call("cuDestroyExternalSemaphore", Needs::context, [&] { driver().semaphores.remove(handle); });
}

SIMGPU_BOTH(cuSignalExternalSemaphoresAsync, _ptsz, signal,
            (const CUexternalSemaphore* h, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* p, unsigned n,
             CUstream s),
            h, p, n, s)
SIMGPU_BOTH(cuWaitExternalSemaphoresAsync, _ptsz, wait_for,
            (const CUexternalSemaphore* h, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* p, unsigned n,
             CUstream s),
            h, p, n, s)

}  // extern "C"
