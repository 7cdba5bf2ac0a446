// SPDX-License-Identifier: Apache-2.0
// Modules, libraries, functions and launches.
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "tests/simgpu/api.h"
#include "tests/simgpu/launch.h"
#include "tests/simgpu/ptx.h"
#include "tests/simgpu/work.h"

using namespace sharedgpu::simgpu;

namespace {

// The kernels of an image that the simulated GPU has. Prints a line for each other kernel.
std::vector<const Kernel*> kernels_of(const std::string& text) {
  auto entries = parse_ptx(text);
  require(entries.has_value(), CUDA_ERROR_INVALID_IMAGE);
  std::vector<const Kernel*> kernels;
  for (const PtxEntry& entry : *entries) {
    const Kernel* kernel = find_kernel(entry.name);
    if (kernel == nullptr) {
      std::fprintf(stderr, "simgpu: kernel '%s' is not known to the simulated GPU\n", entry.name.c_str());
      continue;
    }
    if (kernel->parameters != entry.parameters) {
      std::fprintf(stderr, "simgpu: kernel '%s' has other parameters than the simulated GPU knows\n",
                   entry.name.c_str());
      throw Error{CUDA_ERROR_INVALID_PTX};
    }
    kernels.push_back(kernel);
  }
  return kernels;
}

CUresult load(const char* name, CUmodule* out, const std::string& text) {
  return call(name, Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto module = std::make_shared<Module>();
    module->context = current_context();
    for (const Kernel* kernel : kernels_of(text)) {
      auto function = std::make_shared<Function>(Function{kernel, module.get()});
      module->functions[kernel->name] = function;
      driver().functions.add(function);
    }
    *out = reinterpret_cast<CUmodule>(driver().modules.add(module));
  });
}

#if CUDA_VERSION >= 12040
void get_parameter(const Kernel& kernel, std::size_t index, std::size_t* offset, std::size_t* size) {
  require(offset != nullptr && index < kernel.parameters.size(), CUDA_ERROR_INVALID_VALUE);
  *offset = parameter_offset(kernel.parameters, index);
  if (size != nullptr) *size = kernel.parameters[index];
}
#endif

CUresult load_data(const char* name, CUmodule* out, const void* image) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return load(name, out, static_cast<const char*>(image));
}

CUresult launch(const char* name, DefaultStream zero, const CUlaunchConfig& c, CUfunction handle,
                void** parameters, void** extra) {
  return call(name, Needs::context, [&] {
    KernelParameters kernel = kernel_parameters(
        handle, {c.gridDimX, c.gridDimY, c.gridDimZ, c.blockDimX, c.blockDimY, c.blockDimZ, c.sharedMemBytes},
        parameters, extra);
    for (unsigned i = 0; i < c.numAttrs; ++i) kernel.attributes[c.attrs[i].id] = c.attrs[i].value;
    submit(find_stream(zero, c.hStream), node_work({std::move(kernel)}));
  });
}

CUlaunchConfig configuration(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned shared, CUstream s) {
  CUlaunchConfig config = {};
  config.gridDimX = gx;
  config.gridDimY = gy;
  config.gridDimZ = gz;
  config.blockDimX = bx;
  config.blockDimY = by;
  config.blockDimZ = bz;
  config.sharedMemBytes = shared;
  config.hStream = s;
  return config;
}

CUresult launch_plain(DefaultStream zero, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                      unsigned by, unsigned bz, unsigned shared, CUstream s, void** parameters,
                      void** extra) {
  return launch("cuLaunchKernel", zero, configuration(gx, gy, gz, bx, by, bz, shared, s), f, parameters,
                extra);
}

CUresult launch_cooperative(DefaultStream zero, CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                            unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s,
                            void** parameters) {
  CUlaunchAttribute cooperative = {};
  cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  cooperative.value.cooperative = 1;
  CUlaunchConfig config = configuration(gx, gy, gz, bx, by, bz, shared, s);
  config.attrs = &cooperative;
  config.numAttrs = 1;
  return launch("cuLaunchCooperativeKernel", zero, config, f, parameters, nullptr);
}

CUresult launch_extended(DefaultStream zero, const CUlaunchConfig* config, CUfunction f, void** parameters,
                         void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch("cuLaunchKernelEx", zero, *config, f, parameters, extra);
}

// Makes each stream wait until all streams have reached this point.
void join(const std::vector<StreamPtr>& streams) {
  std::vector<Event> events(streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) record(events[i], streams[i]);
  for (const StreamPtr& stream : streams)
    for (Event& event : events) wait_event(stream, event);
}

CUresult launch_on_several(const CUDA_LAUNCH_PARAMS* launches, unsigned count, unsigned flags) {
  return call("cuLaunchCooperativeKernelMultiDevice", Needs::context, [&] {
    require(launches != nullptr && count > 0, CUDA_ERROR_INVALID_VALUE);
    std::vector<StreamPtr> streams;
    std::vector<Work> kernels;
    std::set<int> devices;
    for (unsigned i = 0; i < count; ++i) {
      const CUDA_LAUNCH_PARAMS& l = launches[i];
      auto function = find_function(l.function);
      require(function->kernel == find_function(launches[0].function)->kernel, CUDA_ERROR_INVALID_VALUE);
      require(l.hStream != nullptr && l.hStream != CU_STREAM_LEGACY && l.hStream != CU_STREAM_PER_THREAD,
              CUDA_ERROR_INVALID_VALUE);
      check_grid({l.gridDimX, l.gridDimY, l.gridDimZ}, {l.blockDimX, l.blockDimY, l.blockDimZ});
      streams.push_back(driver().streams.get(l.hStream));
      require(function->module == nullptr || function->module->context == streams.back()->context,
              CUDA_ERROR_INVALID_VALUE);
      require(devices.insert(streams.back()->context->device()).second, CUDA_ERROR_INVALID_DEVICE);
      kernels.push_back(kernel_work(*function->kernel, collect(*function->kernel, l.kernelParams, nullptr)));
    }
    if ((flags & CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC) == 0) join(streams);
    for (unsigned i = 0; i < count; ++i) submit(streams[i], std::move(kernels[i]));
    if ((flags & CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC) == 0) join(streams);
  });
}

}  // namespace

#undef cuLaunchKernel
#undef cuLaunchKernelEx
#undef cuLaunchCooperativeKernel

extern "C" {

CUresult CUDAAPI cuModuleLoadData(CUmodule* out, const void* image) {
  return load_data("cuModuleLoadData", out, image);
}
CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int, CUjit_option*, void**) {
  return load_data("cuModuleLoadDataEx", out, image);
}

CUresult CUDAAPI cuModuleLoad(CUmodule* out, const char* path) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::stringstream text;
  text << file.rdbuf();
  return load("cuModuleLoad", out, text.str());
}

CUresult CUDAAPI cuModuleUnload(CUmodule handle) {
  return call("cuModuleUnload", Needs::context, [&] {
    auto module = driver().modules.remove(handle);
    for (const auto& [name, function] : module->functions) driver().functions.remove(function.get());
  });
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  return call("cuModuleGetFunction", Needs::context, [&] {
    require(out != nullptr && name != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto module = driver().modules.get(handle);
    auto found = module->functions.find(name);
    require(found != module->functions.end(), CUDA_ERROR_NOT_FOUND);
    *out = reinterpret_cast<CUfunction>(found->second.get());
  });
}

CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return call("cuFuncGetAttribute", Needs::context, [&] {
    require(value != nullptr && attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX,
            CUDA_ERROR_INVALID_VALUE);
    find_function(handle);
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        break;
      case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 16;
        break;
      case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = 70;
        break;
      case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 90;
        break;
      default:
        *value = 0;
    }
  });
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction handle, CUfunction_attribute, int) {
  return call("cuFuncSetAttribute", Needs::context, [&] { find_function(handle); });
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  return call("cuFuncSetCacheConfig", Needs::context, [&] { find_function(handle); });
}

CUresult CUDAAPI cuFuncGetModule(CUmodule* out, CUfunction handle) {
  return call("cuFuncGetModule", Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    *out = reinterpret_cast<CUmodule>(find_function(handle)->module);
  });
}

#if CUDA_VERSION >= 12030
CUresult CUDAAPI cuFuncGetName(const char** out, CUfunction handle) {
  return call("cuFuncGetName", Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    *out = find_function(handle)->kernel->name;
  });
}
#endif

#if CUDA_VERSION >= 12040
CUresult CUDAAPI cuFuncGetParamInfo(CUfunction handle, std::size_t index, std::size_t* offset,
                                    std::size_t* size) {
  return call("cuFuncGetParamInfo", Needs::context,
              [&] { get_parameter(*find_function(handle)->kernel, index, offset, size); });
}
CUresult CUDAAPI cuKernelGetParamInfo(CUkernel handle, std::size_t index, std::size_t* offset,
                                      std::size_t* size) {
  return call("cuKernelGetParamInfo", Needs::context,
              [&] { get_parameter(*driver().kernels.get(handle)->kernel, index, offset, size); });
}
#endif

#if CUDA_VERSION >= 12000
CUresult CUDAAPI cuLibraryLoadData(CUlibrary* out, const void* image, CUjit_option*, void**, unsigned int,
                                   CUlibraryOption*, void**, unsigned int) {
  return call("cuLibraryLoadData", Needs::init, [&] {
    require(out != nullptr && image != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto library = std::make_shared<Library>();
    for (const Kernel* kernel : kernels_of(static_cast<const char*>(image))) {
      auto made = std::make_shared<LibraryKernel>();
      made->kernel = kernel;
      made->function = std::make_shared<Function>(Function{kernel, nullptr});
      library->kernels[kernel->name] = made;
      driver().kernels.add(made);
      driver().functions.add(made->function);
    }
    *out = reinterpret_cast<CUlibrary>(driver().libraries.add(library));
  });
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary handle) {
  return call("cuLibraryUnload", Needs::init, [&] {
    auto library = driver().libraries.remove(handle);
    for (const auto& [name, kernel] : library->kernels) {
      driver().functions.remove(kernel->function.get());
      driver().kernels.remove(kernel.get());
    }
  });
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  return call("cuLibraryGetKernel", Needs::init, [&] {
    require(out != nullptr && name != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto library = driver().libraries.get(handle);
    auto found = library->kernels.find(name);
    require(found != library->kernels.end(), CUDA_ERROR_NOT_FOUND);
    *out = reinterpret_cast<CUkernel>(found->second.get());
  });
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  return call("cuKernelGetFunction", Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    *out = reinterpret_cast<CUfunction>(driver().kernels.get(handle)->function.get());
  });
}
#endif

#if CUDA_VERSION >= 12030
CUresult CUDAAPI cuKernelGetName(const char** out, CUkernel handle) {
  return call("cuKernelGetName", Needs::init, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    *out = driver().kernels.get(handle)->kernel->name;
  });
}
#endif

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                             std::size_t) {
  return call("cuOccupancyMaxActiveBlocksPerMultiprocessor", Needs::context, [&] {
    require(blocks != nullptr && threads > 0, CUDA_ERROR_INVALID_VALUE);
    find_function(handle);
    *blocks = threads > 1024 ? 0 : 2048 / threads;
  });
}

CUresult CUDAAPI cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned int count,
                                                      unsigned int flags) {
  return launch_on_several(launches, count, flags);
}

SIMGPU_BOTH(cuLaunchKernel, _ptsz, launch_plain,
            (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
             unsigned m, CUstream s, void** p, void** e),
            f, gx, gy, gz, bx, by, bz, m, s, p, e)
SIMGPU_BOTH(cuLaunchCooperativeKernel, _ptsz, launch_cooperative,
            (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
             unsigned m, CUstream s, void** p),
            f, gx, gy, gz, bx, by, bz, m, s, p)
SIMGPU_BOTH(cuLaunchKernelEx, _ptsz, launch_extended,
            (const CUlaunchConfig* c, CUfunction f, void** p, void** e), c, f, p, e)

}  // extern "C"
