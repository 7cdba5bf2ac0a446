// SPDX-License-Identifier: Apache-2.0
// A mutex whose use clang checks (-Wthread-safety): data that the mutex guards is accessed only while the
// mutex is held.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SHAREDGPU_CHECKED(attribute) __attribute__((attribute))
#else
#define SHAREDGPU_CHECKED(attribute)
#endif
#define GUARDED_BY(mutex) SHAREDGPU_CHECKED(guarded_by(mutex))
#define REQUIRES(...) SHAREDGPU_CHECKED(requires_capability(__VA_ARGS__))

namespace sharedgpu {

class SHAREDGPU_CHECKED(capability("mutex")) Mutex {
 public:
  void lock() SHAREDGPU_CHECKED(acquire_capability()) { mutex_.lock(); }
  void unlock() SHAREDGPU_CHECKED(release_capability()) { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

// Holds the mutex from construction to destruction, except between unlock() and lock().
class SHAREDGPU_CHECKED(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SHAREDGPU_CHECKED(acquire_capability(mutex)) : mutex_(mutex) { lock(); }
  ~MutexLock() SHAREDGPU_CHECKED(release_capability()) {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void lock() SHAREDGPU_CHECKED(acquire_capability()) {
    mutex_.lock();
    held_ = true;
  }
  void unlock() SHAREDGPU_CHECKED(release_capability()) {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = false;
};

class Condition {
 public:
  // May return early. Releases the mutex while waiting.
  void wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // The same, for about `patience` at most. Waits by the system's clock, since old versions of glibc lack the
  // function for other clocks.
  void wait_for(Mutex& mutex, std::chrono::microseconds patience) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait_until(lock, std::chrono::system_clock::now() + patience);
    lock.release();
  }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace sharedgpu
