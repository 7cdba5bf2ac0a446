// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/kernels.h"

#include "interposer/memory/fingerprint.h"
#include "tests/programs/pattern.h"

namespace sharedgpu::simgpu {
namespace {

using Arg = const Arguments&;

template <class Word = std::uint64_t>
Word* words(std::uint64_t address) {
  return pointer<Word>(address);
}

Bytes word_bytes(std::uint64_t count, std::size_t size) { return {count * size}; }

std::vector<Range> nowhere(Arg) { return {}; }
Bytes no_traffic(Arg) { return {}; }
Nanoseconds no_extra(Arg) { return {}; }

// These functions are for kernels whose first parameters are a pointer and a count of 64-bit words.
std::vector<Range> buffer(Arg a) { return {{a[0], word_bytes(a[1], 8)}}; }
Bytes written(Arg a) { return word_bytes(a[1], 8); }
Bytes read_and_written(Arg a) { return word_bytes(a[1], 16); }

CUresult pattern_fill(Arg a, const Reach&) {
  std::uint64_t* data = words(a[0]);
  for (std::uint64_t i = 0, n = a[1], seed = a[2], first = a[3]; i < n; ++i)
    data[i] = pattern::fill(seed, first + i);
  return CUDA_SUCCESS;
}

CUresult pattern_step(Arg a, const Reach&) {
  std::uint64_t* data = words(a[0]);
  for (std::uint64_t i = 0, n = a[1], iteration = a[2]; i < n; ++i)
    data[i] = pattern::step(data[i], iteration);
  return CUDA_SUCCESS;
}

CUresult pattern_checksum(Arg a, const Reach&) {
  const std::uint64_t* data = words(a[0]);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0, n = a[1], first = a[3]; i < n; ++i) sum += pattern::weigh(data[i], first + i);
  *words(a[2]) += sum;
  return CUDA_SUCCESS;
}

CUresult add_value(Arg a, const Reach&) {
  auto* data = words<std::uint32_t>(a[0]);
  auto value = static_cast<std::uint32_t>(a[2]);
  for (std::uint64_t i = 0, n = a[1]; i < n; ++i) data[i] += value;
  return CUDA_SUCCESS;
}

CUresult gather_sum(Arg a, const Reach& reach) {
  const std::uint64_t* table = words(a[0]);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < a[1]; ++i) {
    if (!reach({table[i], word_bytes(a[2], 8), false})) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (std::uint64_t j = 0; j < a[2]; ++j) sum += words(table[i])[j];
  }
  *words(a[3]) += sum;
  return CUDA_SUCCESS;
}

// The ranges to which the table of pointers at a[0] points: a[1] ranges of a[2] words each.
std::vector<Range> gathered(Arg a) {
  std::vector<Range> ranges;
  for (std::uint64_t i = 0; i < a[1]; ++i) ranges.push_back({words(a[0])[i], word_bytes(a[2], 8), false});
  return ranges;
}
std::vector<Range> stepped(Arg a) {
  std::vector<Range> ranges = gathered(a);
  for (Range& range : ranges) range.written = true;
  return ranges;
}

CUresult pattern_hidden(Arg a, const Reach& reach) {
  for (const Range& range : stepped(a)) {
    if (!reach(range)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::uint64_t* data = words(range.begin);
    for (std::uint64_t i = 0, n = a[2], iteration = a[3]; i < n; ++i)
      data[i] = pattern::step(data[i], iteration);
  }
  return CUDA_SUCCESS;
}

CUresult pattern_product(Arg a, const Reach&) {
  const std::uint64_t* operand = words(a[2]);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0, n = a[3]; i < n; ++i) sum += operand[i];
  std::uint64_t* data = words(a[0]);
  for (std::uint64_t i = 0, n = a[1], iteration = a[4]; i < n; ++i)
    data[i] = pattern::product(data[i], iteration, sum);
  return CUDA_SUCCESS;
}

CUresult store_word(Arg a, const Reach&) {
  *words(a[0]) = a[1];
  return CUDA_SUCCESS;
}

// These functions are for the fingerprint kernel. Its parameters are: range, count of parts, address of the
// results, stamp, key.
Bytes looked_at(Arg a) { return {a[1] * fingerprint::kPart.count}; }

CUresult take_fingerprint(Arg a, const Reach&) {
  fingerprint::KernelKey key;
  std::memcpy(&key, a.bytes().data() + a.bytes().size() - sizeof key, sizeof key);
  for (std::uint64_t i = 0; i < a[1]; ++i)
    pointer<fingerprint::Part>(a[2])[i] =
        fingerprint::look(key, pointer<std::byte>(a[0]), looked_at(a), i, a[3]);
  return CUDA_SUCCESS;
}

CUresult nothing(Arg, const Reach&) { return CUDA_SUCCESS; }
CUresult trap(Arg, const Reach&) { return CUDA_ERROR_LAUNCH_FAILED; }

// One entry for each kernel, with the fields of struct Kernel.
const Kernel kKernels[] = {
    {"pattern_fill", {8, 8, 8, 8}, buffer, pattern_fill, written, no_extra},
    {"pattern_step", {8, 8, 8}, buffer, pattern_step, read_and_written, no_extra},
    {"pattern_checksum",
     {8, 8, 8, 8},
     [](Arg a) {
       return std::vector<Range>{{a[0], word_bytes(a[1], 8), false}, {a[2], {8}}};
     },
     pattern_checksum,
     written,
     no_extra},
    {"add_value",
     {8, 8, 4},
     [](Arg a) {
       return std::vector<Range>{{a[0], word_bytes(a[1], 4)}};
     },
     add_value,
     [](Arg a) { return word_bytes(a[1], 8); },
     no_extra},
    {"gather_sum",
     {8, 8, 8, 8},
     [](Arg a) {
       return std::vector<Range>{{a[0], word_bytes(a[1], 8), false}, {a[3], {8}}};
     },
     gather_sum,
     [](Arg a) { return word_bytes(a[1] * a[2], 8); },
     no_extra,
     gathered},
    {"pattern_hidden",
     {8, 8, 8, 8},
     [](Arg a) {
       return std::vector<Range>{{a[0], word_bytes(a[1], 8), false}};
     },
     pattern_hidden,
     [](Arg a) { return word_bytes(a[1] * a[2], 16); },
     no_extra,
     stepped},
    // While the operand is in device memory, caches serve seven of eight reads of it.
    {"pattern_product",
     {8, 8, 8, 8, 8},
     [](Arg a) {
       return std::vector<Range>{{a[0], word_bytes(a[1], 8)}, {a[2], word_bytes(a[3], 8), false}};
     },
     pattern_product,
     [](Arg a) { return word_bytes(a[1] * 2 + a[3] * pattern::kProductBlocks / 8, 8); },
     no_extra,
     nullptr,
     pattern::kProductBlocks},
    {"store_word",
     {8, 8},
     [](Arg a) {
       return std::vector<Range>{{a[0], {8}}};
     },
     store_word,
     no_traffic,
     no_extra},
    {"sharedgpu_fingerprint",
     {8, 8, 8, 8, sizeof(fingerprint::KernelKey)},
     [](Arg a) {
       return std::vector<Range>{{a[0], looked_at(a), false},
                                 {a[2], word_bytes(a[1], sizeof(fingerprint::Part))}};
     },
     take_fingerprint,
     looked_at,
     no_extra},
    {"spin", {8}, nowhere, nothing, no_traffic, [](Arg a) { return Nanoseconds(a[0]); }},
    {"empty", {}, nowhere, nothing, no_traffic, no_extra},
    {"trap", {}, nowhere, trap, no_traffic, no_extra},
};

}  // namespace

std::size_t parameter_offset(const std::vector<std::size_t>& sizes, std::size_t index) {
  std::size_t offset = 0;
  for (std::size_t i = 0;; ++i) {
    std::size_t alignment = sizes[i] < 8 ? sizes[i] : 8;
    offset = (offset + alignment - 1) / alignment * alignment;
    if (i == index) return offset;
    offset += sizes[i];
  }
}

std::vector<void*> Arguments::pointers() const {
  std::vector<void*> all;
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    all.push_back(const_cast<std::byte*>(bytes_.data()) + parameter_offset(sizes_, i));
  return all;
}

std::uint64_t Arguments::operator[](std::size_t index) const {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes_.data() + parameter_offset(sizes_, index), sizes_[index]);
  return value;
}

const Kernel* find_kernel(const std::string& name) {
  for (const Kernel& kernel : kKernels)
    if (name == kernel.name) return &kernel;
  return nullptr;
}

}  // namespace sharedgpu::simgpu
