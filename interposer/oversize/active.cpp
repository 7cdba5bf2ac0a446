// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/active.h"

namespace sharedgpu::oversize {

constinit std::atomic<bool> detail::active{false};

}  // namespace sharedgpu::oversize
