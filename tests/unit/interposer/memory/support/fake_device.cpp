// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/interposer/memory/support/fake_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace sharedgpu::test {
namespace {

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

void map_nothing(void* where, std::size_t size) {
  mmap(where, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

const fingerprint::Key& known_key() {
  static const fingerprint::Key key = [] {
    fingerprint::Key made;
    fingerprint::draw(&made);
    return made;
  }();
  return key;
}

template <class Sizes>
Bytes sum(const Sizes& sizes) {
  Bytes total;
  for (const auto& [key, size] : sizes) total += size;
  return total;
}

}  // namespace

FakeDevice::FakeDevice(Bytes capacity, Bytes granularity) : capacity_(capacity), granularity_(granularity) {}

FakeDevice::~FakeDevice() {
  for (const auto& [base, size] : reserved_) munmap(pointer(base), size.count);
  for (const auto& [id, piece] : pieces_) close(piece.file);
}

void FakeDevice::fail_call(unsigned n, CUresult code, unsigned more) {
  const std::lock_guard lock(mutex_);
  calls_to_failure_ = n;
  more_failures_ = more;
  failure_ = code;
  failed_ = false;
}

bool FakeDevice::has_failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

void FakeDevice::set_out_of_memory(bool out) {
  const std::lock_guard lock(mutex_);
  out_of_memory_ = out;
}

void FakeDevice::lose() {
  fail_call(1, CUDA_ERROR_UNKNOWN, ~0u);
  const std::lock_guard lock(mutex_);
  lost_ = true;
}

bool FakeDevice::lost() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void FakeDevice::end() {
  fail_call(1, CUDA_ERROR_DEINITIALIZED, ~0u);
  const std::lock_guard lock(mutex_);
  ending_ = true;
}

bool FakeDevice::ending() {
  const std::lock_guard lock(mutex_);
  return ending_;
}

// The mutex must be held.
Bytes FakeDevice::existing(bool on_host) const {
  Bytes total;
  for (const auto& [id, piece] : pieces_)
    if (piece.on_host == on_host) total += piece.size;
  return total;
}

Bytes FakeDevice::physical() const {
  const std::lock_guard lock(mutex_);
  return existing(false);
}

Bytes FakeDevice::most_physical() const {
  const std::lock_guard lock(mutex_);
  return most_physical_;
}

Bytes FakeDevice::host_physical() const {
  const std::lock_guard lock(mutex_);
  return existing(true);
}

Bytes FakeDevice::reserved() const {
  const std::lock_guard lock(mutex_);
  return sum(reserved_);
}

Bytes FakeDevice::pinned() const {
  const std::lock_guard lock(mutex_);
  return sum(pinned_);
}

unsigned FakeDevice::synchronizations() const {
  const std::lock_guard lock(mutex_);
  return synchronizations_;
}

unsigned FakeDevice::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

Bytes FakeDevice::copied_out() const {
  const std::lock_guard lock(mutex_);
  return copied_out_;
}

Bytes FakeDevice::copied_in() const {
  const std::lock_guard lock(mutex_);
  return copied_in_;
}

unsigned FakeDevice::looks() const {
  const std::lock_guard lock(mutex_);
  return looks_;
}

void FakeDevice::set_blind(bool blind) {
  const std::lock_guard lock(mutex_);
  blind_ = blind;
}

std::string FakeDevice::misuse() const {
  const std::lock_guard lock(mutex_);
  return misuse_;
}

bool FakeDevice::fails(CUresult* code) {
  ++calls_;
  if (calls_to_failure_ == 0 || --calls_to_failure_ != 0) return false;
  failed_ = true;
  *code = failure_;
  if (more_failures_ != 0) {
    --more_failures_;
    calls_to_failure_ = 1;
  }
  return true;
}

void FakeDevice::expect(bool good, const char* what) {
  if (!good && misuse_.empty()) misuse_ = what;
}

bool FakeDevice::accessible(CUdeviceptr address, Bytes size) const {
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return false;
  const auto& [base, mapping] = *std::prev(after);
  return mapping.accessible && address + size.count <= base + mapping.size.count;
}

bool FakeDevice::is_pinned(const std::byte* data, Bytes size) const {
  const auto after = pinned_.upper_bound(data);
  if (after == pinned_.begin()) return false;
  const auto& [base, whole] = *std::prev(after);
  return data + size.count <= base + whole.count;
}

Physical FakeDevice::mapped_at(CUdeviceptr address) const {
  const std::lock_guard lock(mutex_);
  const auto mapping = mappings_.find(address);
  return mapping == mappings_.end() ? 0 : mapping->second.physical;
}

// The descriptor is never closed: its number identifies the memory.
CUresult FakeDevice::export_memory(CUdeviceptr address, int* descriptor) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  const auto mapping = mappings_.find(address);
  expect(mapping != mappings_.end(), "export: not mapped");
  if (mapping == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  *descriptor = static_cast<int>(mapping->second.physical);
  return CUDA_SUCCESS;
}

CUresult FakeDevice::reserve(CUdeviceptr* base, Bytes size) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  expect(size.count % granularity_.count == 0 && size.count != 0, "reserve: not whole granules");
  void* const data = mmap(nullptr, size.count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *base = reinterpret_cast<CUdeviceptr>(data);
  reserved_[*base] = size;
  return CUDA_SUCCESS;
}

CUresult FakeDevice::unreserve(CUdeviceptr base, Bytes size) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  const auto found = reserved_.find(base);
  expect(found != reserved_.end() && found->second == size, "unreserve: not what was reserved");
  const auto mapping = mappings_.lower_bound(base);
  expect(mapping == mappings_.end() || mapping->first >= base + size.count, "unreserve: still mapped");
  if (found == reserved_.end()) return CUDA_ERROR_INVALID_VALUE;
  munmap(pointer(base), size.count);
  reserved_.erase(found);
  return CUDA_SUCCESS;
}

CUresult FakeDevice::create(Physical* physical, Bytes size, const CUmemAllocationProp*) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  Bytes taken;
  for (const auto& [id, piece] : pieces_)
    if (!piece.on_host) taken += piece.size;
  if (out_of_memory_ || taken + size > capacity_) return CUDA_ERROR_OUT_OF_MEMORY;
  return make(physical, size, false);
}

CUresult FakeDevice::create_on_host(Physical* physical, Bytes size) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  return make(physical, size, true);
}

CUresult FakeDevice::make(Physical* physical, Bytes size, bool on_host) {
  expect(size.count % granularity_.count == 0 && size.count != 0, "create: not whole granules");
  const int file = memfd_create("fake device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(size.count)) != 0) return CUDA_ERROR_UNKNOWN;
  const std::vector<std::byte> garbage(size.count, std::byte{0xA5});
  if (pwrite(file, garbage.data(), garbage.size(), 0) < 0) return CUDA_ERROR_UNKNOWN;
  *physical = next_physical_++;
  pieces_[*physical] = {.size = size, .file = file, .on_host = on_host};
  most_physical_ = std::max(most_physical_, existing(false));
  return CUDA_SUCCESS;
}

CUresult FakeDevice::retain(Physical* physical, CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  const auto mapping = mappings_.find(address);
  expect(mapping != mappings_.end(), "retain: nothing is mapped there");
  if (mapping == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  *physical = mapping->second.physical;
  ++pieces_[*physical].references;
  return CUDA_SUCCESS;
}

CUdeviceptr FakeDevice::reserve_for_program(Bytes size) {
  CUdeviceptr base = 0;
  const unsigned pending = std::exchange(calls_to_failure_, 0);
  reserve(&base, size);
  calls_to_failure_ = pending;
  return base;
}

void FakeDevice::drop_if_unused(Physical physical) {
  const auto piece = pieces_.find(physical);
  if (piece->second.references != 0 || piece->second.mappings != 0) return;
  close(piece->second.file);
  pieces_.erase(piece);
}

CUresult FakeDevice::release(Physical physical) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  const auto piece = pieces_.find(physical);
  expect(piece != pieces_.end() && piece->second.references != 0, "release: no such reference");
  if (piece == pieces_.end()) return CUDA_ERROR_INVALID_VALUE;
  --piece->second.references;
  drop_if_unused(physical);
  return CUDA_SUCCESS;
}

CUresult FakeDevice::map(CUdeviceptr address, Bytes size, Physical physical) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  const auto range = reserved_.upper_bound(address);
  expect(range != reserved_.begin() &&
             address + size.count <= std::prev(range)->first + std::prev(range)->second.count,
         "map: not reserved");
  expect(pieces_.count(physical) == 1 && pieces_[physical].size == size, "map: no such memory");
  const auto after = mappings_.lower_bound(address + size.count);
  expect(
      after == mappings_.begin() || std::prev(after)->first + std::prev(after)->second.size.count <= address,
      "map: mapped already");
  if (!misuse_.empty() || mmap(pointer(address), size.count, PROT_NONE, MAP_SHARED | MAP_FIXED,
                               pieces_[physical].file, 0) == MAP_FAILED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++pieces_[physical].mappings;
  mappings_[address] = {size, physical};
  return CUDA_SUCCESS;
}

CUresult FakeDevice::allow_access(CUdeviceptr address, Bytes size) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  const auto mapping = mappings_.find(address);
  expect(mapping != mappings_.end() && mapping->second.size == size, "allow_access: not a mapping");
  if (mapping == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  mprotect(pointer(address), size.count, PROT_READ | PROT_WRITE);
  mapping->second.accessible = true;
  return CUDA_SUCCESS;
}

CUresult FakeDevice::set_access(CUdeviceptr address, Bytes size, const std::vector<CUmemAccessDesc>& access) {
  expect(!access.empty() && access.front().flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
         "set_access: other flags");
  return allow_access(address, size);
}

CUresult FakeDevice::unmap(CUdeviceptr address, Bytes size) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  const auto mapping = mappings_.find(address);
  expect(mapping != mappings_.end() && mapping->second.size == size, "unmap: not a whole mapping");
  if (mapping == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& lane : copies_) {
    for (const Copy& copy : lane) {
      for (const CUdeviceptr used : {copy.device, copy.device_source})
        expect(used + copy.size <= address || used >= address + size.count, "unmap: a copy is under way");
    }
  }
  map_nothing(pointer(address), size.count);
  const Physical physical = mapping->second.physical;
  mappings_.erase(mapping);
  --pieces_[physical].mappings;
  drop_if_unused(physical);
  return CUDA_SUCCESS;
}

CUresult FakeDevice::enter() {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  expect(!entered_, "enter: twice");
  entered_ = true;
  return CUDA_SUCCESS;
}

void FakeDevice::leave() {
  const std::lock_guard lock(mutex_);
  expect(entered_, "leave: without enter");
  entered_ = false;
}

CUresult FakeDevice::copy_out(Lane lane, std::byte* host, CUdeviceptr from, Bytes size) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  expect(entered_ && accessible(from, size) && is_pinned(host, size), "copy_out: bad addresses");
  copied_out_ += size;
  copies_[lane.index].push_back({host, static_cast<const std::byte*>(pointer(from)), size.count, from});
  return CUDA_SUCCESS;
}

CUresult FakeDevice::copy_in(Lane lane, CUdeviceptr to, const std::byte* host, Bytes size) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  expect(entered_ && accessible(to, size) && is_pinned(host, size), "copy_in: bad addresses");
  copied_in_ += size;
  copies_[lane.index].push_back({static_cast<std::byte*>(pointer(to)), host, size.count, to});
  return CUDA_SUCCESS;
}

CUresult FakeDevice::copy(Lane lane, CUdeviceptr to, CUdeviceptr from, Bytes size) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  expect(entered_ && accessible(to, size) && accessible(from, size), "copy: bad addresses");
  copies_[lane.index].push_back({static_cast<std::byte*>(pointer(to)),
                                 static_cast<const std::byte*>(pointer(from)), size.count, to, 0, from});
  return CUDA_SUCCESS;
}

CUresult FakeDevice::fill(Lane lane, CUdeviceptr to, Bytes size, std::uint32_t word) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  expect(entered_ && accessible(to, size), "fill: bad addresses");
  copies_[lane.index].push_back({static_cast<std::byte*>(pointer(to)), nullptr, size.count, to, word});
  return CUDA_SUCCESS;
}

// An injected failure occurs before the call begins its work, or when the call would wait for the work.
CUresult FakeDevice::fingerprints(std::span<const Look> ranges, Fingerprint* found) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (blind_) return CUDA_ERROR_NOT_SUPPORTED;
  if (fails(&code)) return code;
  std::vector<Copy>& reading = copies_[Lane::kLooks];
  expect(reading.empty(), "fingerprints: others are still under way");
  Bytes together;
  for (const Look& range : ranges) {
    expect(entered_ && accessible(range.address, range.size), "fingerprints: bad addresses");
    together += range.size;
    reading.push_back({nullptr, nullptr, range.size.count, range.address});
  }
  expect(together <= kMostLooked, "fingerprints: too much at once");
  if (!misuse_.empty() || fails(&code)) return code;
  looks_ += static_cast<unsigned>(ranges.size());
  for (const Look& range : ranges)
    *found++ =
        fingerprint::of(known_key(), static_cast<const std::byte*>(pointer(range.address)), range.size);
  reading.clear();
  return CUDA_SUCCESS;
}

void FakeDevice::run(Lane lane) {
  for (const Copy& copy : copies_[lane.index]) {
    if (copy.from != nullptr) std::memcpy(copy.to, copy.from, copy.size);
    if (copy.from == nullptr && copy.to != nullptr)
      std::fill_n(reinterpret_cast<std::uint32_t*>(copy.to), copy.size / sizeof copy.word, copy.word);
  }
  copies_[lane.index].clear();
}

CUresult FakeDevice::wait(Lane lane) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  run(lane);
  return CUDA_SUCCESS;
}

CUresult FakeDevice::pin_host(std::byte* data, Bytes size) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  pinned_[data] = size;
  return CUDA_SUCCESS;
}

CUresult FakeDevice::unpin_host(std::byte* data) {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  expect(pinned_.erase(data) == 1, "unpin_host: not pinned");
  return CUDA_SUCCESS;
}

CUresult FakeDevice::synchronize() {
  const std::lock_guard lock(mutex_);
  CUresult code{};
  if (fails(&code)) return code;
  ++synchronizations_;
  for (unsigned lane = 0; lane < Lane::kAll; ++lane) run({lane});
  return CUDA_SUCCESS;
}

}  // namespace sharedgpu::test
