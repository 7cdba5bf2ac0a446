// SPDX-License-Identifier: Apache-2.0
// Adds and removes address ranges together with the physical memory under them. Thread-safe.
#pragma once

#include "interposer/memory/growth_account.h"

namespace sharedgpu {

class SwapRanges {
 public:
  struct Form {
    Bytes size;
    Bytes handle;  // size of the handles, except the last one (cut_into_handles())
    bool arena = false;
    const CUmemAllocationProp* kind = nullptr;  // see Device::create
  };

  SwapRanges(SwapCommon& common, GrowthAccount& growth) : common_(common), growth_(growth) {}

  // Requests growth, reserves addresses, and backs them with physical memory as far as the resident limit
  // permits.
  CUresult add(Range** added, const Form& form, Wish wish);
  // Releases a range that the program and the GPU do not use any more: waits for the threads that move the
  // range's handles, then unmaps and frees the range. On failure the range stays, and the handles that could
  // not be unmapped keep their memory.
  CUresult take_down(Range& range);
  // Sets the access rights of all mapped memory, after a change of these rights.
  void renew_access();

 private:
  CUresult add_granted(Range** added, const Form& form);
  CUresult back(Range& range);
  CUresult back(Handle& handle);

  SwapCommon& common_;
  GrowthAccount& growth_;
};

}  // namespace sharedgpu
