// SPDX-License-Identifier: Apache-2.0
// The objects of one kind of CUDA handle, such as all streams. A stale or invented handle causes an error,
// not a crash.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "tests/simgpu/errors.h"

namespace sharedgpu::simgpu {

template <class T>
class Handles {
 public:
  T* add(std::shared_ptr<T> object) {
    std::lock_guard lock(mutex_);
    T* key = object.get();
    objects_[key] = std::move(object);
    return key;
  }
  std::shared_ptr<T> find(const void* handle) const {
    std::lock_guard lock(mutex_);
    auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  std::shared_ptr<T> get(const void* handle, CUresult otherwise = CUDA_ERROR_INVALID_HANDLE) const {
    auto object = find(handle);
    require(object != nullptr, otherwise);
    return object;
  }
  std::shared_ptr<T> remove(const void* handle) {
    std::lock_guard lock(mutex_);
    auto found = objects_.find(handle);
    require(found != objects_.end(), CUDA_ERROR_INVALID_HANDLE);
    auto object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  template <class F>
  void for_each(F&& visit) const {
    std::lock_guard lock(mutex_);
    for (const auto& [key, object] : objects_) visit(*object);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<T>> objects_;
};

}  // namespace sharedgpu::simgpu
