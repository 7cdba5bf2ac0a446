// SPDX-License-Identifier: Apache-2.0
// Fills arrays of every kind with a pattern, and holds them while kernels work on other device memory. After
// each kernel, verifies every texel of every level. Prints the size of the arrays each time that they are
// made or destroyed.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

using Clock = std::chrono::steady_clock;

CUDA_ARRAY3D_DESCRIPTOR of(std::size_t width, std::size_t height, std::size_t depth, CUarray_format format,
                           unsigned channels, unsigned flags = 0) {
  return {width, height, depth, format, channels, flags};
}

std::size_t texel(const CUDA_ARRAY3D_DESCRIPTOR& kind) {
  const std::size_t channel = kind.Format == CU_AD_FORMAT_FLOAT  ? 4
                              : kind.Format == CU_AD_FORMAT_HALF ? 2
                                                                 : 1;
  return channel * kind.NumChannels;
}

std::size_t rows(const CUDA_ARRAY3D_DESCRIPTOR& kind) { return std::max<std::size_t>(kind.Height, 1); }
std::size_t planes(const CUDA_ARRAY3D_DESCRIPTOR& kind) { return std::max<std::size_t>(kind.Depth, 1); }
std::size_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& kind) {
  return kind.Width * texel(kind) * rows(kind) * planes(kind);
}

// An array, or a level of a mipmapped array, and the functions that copy it.
struct Picture {
  CUarray array = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR kind = {};
  unsigned seed = 0;

  void fill() const {
    std::vector<unsigned char> host(bytes_of(kind));
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = value(i);
    move(host, true);
  }
  void verify() const {
    std::vector<unsigned char> host(bytes_of(kind));
    move(host, false);
    for (std::size_t i = 0; i < host.size(); ++i)
      if (host[i] != value(i)) fail("an array is not what was copied into it");
  }

 private:
  unsigned char value(std::size_t i) const { return static_cast<unsigned char>(i * 7 + i / 251 + seed * 31); }

  // Copies the whole array from or to `host`, by the function for one, two or three dimensions.
  void move(std::vector<unsigned char>& host, bool in) const {
    const std::size_t pitch = kind.Width * texel(kind);
    if (kind.Height == 0 && kind.Depth == 0) {
      if (in) check(cuMemcpyHtoA(array, 0, host.data(), pitch), "cuMemcpyHtoA");
      if (!in) check(cuMemcpyAtoH(host.data(), array, 0, pitch), "cuMemcpyAtoH");
      return;
    }
    if (kind.Depth == 0) {
      CUDA_MEMCPY2D copy = {};
      copy.srcMemoryType = in ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
      copy.dstMemoryType = in ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
      copy.srcHost = copy.dstHost = host.data();
      copy.srcArray = copy.dstArray = array;
      copy.WidthInBytes = copy.srcPitch = copy.dstPitch = pitch;
      copy.Height = rows(kind);
      check(cuMemcpy2D(&copy), "cuMemcpy2D");
      return;
    }
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = in ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
    copy.dstMemoryType = in ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
    copy.srcHost = copy.dstHost = host.data();
    copy.srcArray = copy.dstArray = array;
    copy.WidthInBytes = copy.srcPitch = copy.dstPitch = pitch;
    copy.Height = copy.srcHeight = copy.dstHeight = rows(kind);
    copy.Depth = planes(kind);
    check(cuMemcpy3D(&copy), "cuMemcpy3D");
  }
};

class Gallery {
 public:
  // The arrays take about 33 MiB.
  Gallery() {
    const CUDA_ARRAY_DESCRIPTOR flat[] = {{65536, 0, CU_AD_FORMAT_FLOAT, 4},
                                          {2048, 1024, CU_AD_FORMAT_UNSIGNED_INT8, 4}};
    for (const CUDA_ARRAY_DESCRIPTOR& kind : flat) {
      CUarray array = nullptr;
      check(cuArrayCreate(&array, &kind), "cuArrayCreate");
      add(array, of(kind.Width, kind.Height, 0, kind.Format, kind.NumChannels));
    }
    for (const CUDA_ARRAY3D_DESCRIPTOR& kind :
         {of(256, 256, 32, CU_AD_FORMAT_FLOAT, 1),
          of(512, 512, 8, CU_AD_FORMAT_HALF, 2, CUDA_ARRAY3D_LAYERED)}) {
      CUarray array = nullptr;
      check(cuArray3DCreate(&array, &kind), "cuArray3DCreate");
      add(array, kind);
    }
    arrays_ = pictures_.size();
    add_levels(of(1024, 1024, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4));
    add_levels(of(16384, 0, 0, CU_AD_FORMAT_FLOAT, 4));
    add_levels(of(256, 256, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP));
    for (const Picture& picture : pictures_) picture.fill();
  }

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Picture& picture : pictures_) sum += bytes_of(picture.kind);
    return sum;
  }
  void verify() const {
    for (const Picture& picture : pictures_) picture.verify();
  }
  void destroy() {
    for (std::size_t i = 0; i < arrays_; ++i) check(cuArrayDestroy(pictures_[i].array), "cuArrayDestroy");
    for (CUmipmappedArray mipmap : mipmaps_)
      check(cuMipmappedArrayDestroy(mipmap), "cuMipmappedArrayDestroy");
  }

 private:
  void add(CUarray array, const CUDA_ARRAY3D_DESCRIPTOR& kind) {
    pictures_.push_back({array, kind, static_cast<unsigned>(pictures_.size())});
  }
  // Adds a mipmapped array with as many levels as possible.
  void add_levels(CUDA_ARRAY3D_DESCRIPTOR kind) {
    CUmipmappedArray mipmap = nullptr;
    unsigned levels = 1;
    while (std::max(kind.Width, kind.Height) >> levels != 0) ++levels;
    check(cuMipmappedArrayCreate(&mipmap, &kind, levels), "cuMipmappedArrayCreate");
    mipmaps_.push_back(mipmap);
    for (unsigned level = 0; level < levels; ++level) {
      CUarray array = nullptr;
      check(cuMipmappedArrayGetLevel(&array, mipmap, level), "cuMipmappedArrayGetLevel");
      add(array, kind);
      kind.Width = std::max<std::size_t>(kind.Width / 2, 1);
      if (kind.Height != 0) kind.Height = std::max<std::size_t>(kind.Height / 2, 1);
    }
  }

  std::vector<Picture> pictures_;
  std::size_t arrays_ = 0;  // number of arrays at the front of pictures_; mipmap levels follow
  std::vector<CUmipmappedArray> mipmaps_;
};

struct Options {
  std::string bytes = "64MiB";
  double seconds = 2;
  double hold = 0;
};

void tell(const char* what, std::size_t bytes, double hold) {
  std::printf("%s %zu\n", what, bytes);
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::duration<double>(hold));
}

void run(const Options& options) {
  start();
  Gallery gallery;
  tell("made", gallery.bytes(), options.hold);
  Kernels kernels;
  Buffer buffer(kernels, parse_size(options.bytes, 0), 1);
  const auto begin = Clock::now();
  std::uint64_t steps = 0;
  for (; Clock::now() - begin < std::chrono::duration<double>(options.seconds); ++steps) {
    buffer.step(steps, nullptr);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    gallery.verify();
  }
  if (!buffer.verify(steps, nullptr)) fail("the device memory is not what the kernels made of it");
  buffer.free();
  gallery.destroy();
  tell("destroyed", gallery.bytes(), options.hold);

  CUcontext other = nullptr;
#if CUDA_VERSION >= 13000
  check(cuCtxCreate(&other, nullptr, 0, 0), "cuCtxCreate");
#else
  check(cuCtxCreate(&other, 0, 0), "cuCtxCreate");
#endif
  {
    const Gallery left;
    left.verify();
    tell("another context's", left.bytes(), options.hold);
  }
  check(cuCtxDestroy(other), "cuCtxDestroy");
  tell("gone with their context", gallery.bytes(), options.hold);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Makes arrays of every kind, holds them beside other memory, and verifies them.");
  Options options;
  app.add_option("--bytes", options.bytes, "device memory to work on meanwhile");
  app.add_option("--seconds", options.seconds, "how long to work").positive();
  app.add_option("--hold", options.hold, "seconds to wait after each line");
  app.parse(argc, argv);
  return status_of([&] { run(options); });
}
