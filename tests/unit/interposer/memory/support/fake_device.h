// SPDX-License-Identifier: Apache-2.0
// A Device with real bytes at real addresses. An access to memory that is not mapped, or not accessible, ends
// the test by a fault. New memory contains arbitrary bytes. Copies take effect only in wait() or
// synchronize(). Any call that returns a CUresult can be made to fail. The first misuse is recorded.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "interposer/memory/device.h"

namespace sharedgpu::test {

class FakeDevice : public Device {
 public:
  explicit FakeDevice(Bytes capacity = gibibytes(1), Bytes granularity = kibibytes(4));
  ~FakeDevice() override;

  // The n-th call after this one (counted from 1) and the `more` calls after it fail with `code`; `n` is 0:
  // no call fails.
  void fail_call(unsigned n, CUresult code = CUDA_ERROR_UNKNOWN, unsigned more = 0);
  // Returns true if a call has failed since fail_call().
  bool has_failed() const;
  // If `out` is true, create() reports that there is no memory.
  void set_out_of_memory(bool out);
  // After this call, every call fails.
  void lose();
  // After this call, every call fails as after the driver's shutdown.
  void end();

  // The amounts of memory that exist. physical() counts device memory only; most_physical() is its highest
  // value so far.
  Bytes physical() const;
  Bytes most_physical() const;
  Bytes host_physical() const;
  Bytes reserved() const;
  Bytes pinned() const;
  unsigned synchronizations() const;
  Bytes copied_out() const;
  Bytes copied_in() const;
  // The number of ranges whose fingerprints fingerprints() has returned. After set_blind(true),
  // fingerprints() returns no fingerprint.
  unsigned looks() const;
  void set_blind(bool blind);
  // The number of calls so far, counting only calls that can fail.
  unsigned calls() const;
  // The memory whose mapping begins exactly at `address`; 0 if none.
  Physical mapped_at(CUdeviceptr address) const;
  // Reserves addresses, as a program does.
  CUdeviceptr reserve_for_program(Bytes size);
  // Describes the first misuse; empty if none.
  std::string misuse() const;

  Bytes granularity() const override { return granularity_; }
  CUresult reserve(CUdeviceptr* base, Bytes size) override;
  CUresult unreserve(CUdeviceptr base, Bytes size) override;
  CUresult create(Physical* physical, Bytes size, const CUmemAllocationProp* kind) override;
  CUresult create_on_host(Physical* physical, Bytes size) override;
  CUresult retain(Physical* physical, CUdeviceptr address) override;
  CUresult release(Physical physical) override;
  CUresult map(CUdeviceptr address, Bytes size, Physical physical) override;
  CUresult allow_access(CUdeviceptr address, Bytes size) override;
  CUresult set_access(CUdeviceptr address, Bytes size, const std::vector<CUmemAccessDesc>& access) override;
  CUresult unmap(CUdeviceptr address, Bytes size) override;
  bool exportable() const override { return true; }
  CUresult export_memory(CUdeviceptr address, int* descriptor) override;
  CUresult enter() override;
  void leave() override;
  CUresult copy_out(Lane lane, std::byte* host, CUdeviceptr from, Bytes size) override;
  CUresult copy_in(Lane lane, CUdeviceptr to, const std::byte* host, Bytes size) override;
  CUresult copy(Lane lane, CUdeviceptr to, CUdeviceptr from, Bytes size) override;
  CUresult fill(Lane lane, CUdeviceptr to, Bytes size, std::uint32_t word) override;
  CUresult fingerprints(std::span<const Look> ranges, Fingerprint* found) override;
  CUresult wait(Lane lane) override;
  CUresult pin_host(std::byte* data, Bytes size) override;
  CUresult unpin_host(std::byte* data) override;
  CUresult synchronize() override;
  bool lost() override;
  bool ending() override;

 protected:
  // Call this with the lock held.
  bool fails(CUresult* code);
  void expect(bool good, const char* what);
  bool entered() const { return entered_; }
  const std::map<CUdeviceptr, Bytes>& ranges() const { return reserved_; }
  mutable std::mutex mutex_;

 private:
  struct Piece {
    Bytes size;
    int file = -1;  // descriptor of the file with the bytes
    unsigned references = 1;
    unsigned mappings = 0;
    bool on_host = false;
  };
  struct Mapping {
    Bytes size;
    Physical physical = 0;
    bool accessible = false;
  };
  // A copy, a fill (`from` is null), or a fingerprint (`from` and `to` are null).
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t size;
    CUdeviceptr device;  // the device address of the copy's source or target
    std::uint32_t word = 0;
    CUdeviceptr device_source = 0;  // the source of the copy, if source and target are device addresses
  };
  Bytes existing(bool on_host) const;
  CUresult make(Physical* physical, Bytes size, bool on_host);
  void drop_if_unused(Physical physical);
  bool accessible(CUdeviceptr address, Bytes size) const;
  void run(Lane lane);
  bool is_pinned(const std::byte* data, Bytes size) const;

  const Bytes capacity_;
  const Bytes granularity_;
  unsigned calls_to_failure_ = 0;
  unsigned more_failures_ = 0;
  CUresult failure_ = CUDA_ERROR_UNKNOWN;
  bool failed_ = false;
  bool out_of_memory_ = false;
  bool lost_ = false;
  bool ending_ = false;
  bool entered_ = false;
  unsigned synchronizations_ = 0;
  unsigned calls_ = 0;
  unsigned looks_ = 0;
  bool blind_ = false;
  Bytes copied_out_;
  Bytes copied_in_;
  std::string misuse_;
  Bytes most_physical_;
  Physical next_physical_ = 1;
  std::map<CUdeviceptr, Bytes> reserved_;
  std::map<Physical, Piece> pieces_;
  std::map<CUdeviceptr, Mapping> mappings_;
  std::map<const std::byte*, Bytes> pinned_;
  std::array<std::vector<Copy>, Lane::kAll> copies_;
};

}  // namespace sharedgpu::test
