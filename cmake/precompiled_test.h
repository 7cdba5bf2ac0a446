// SPDX-License-Identifier: Apache-2.0
// The headers that are precompiled for all test programs; see tests/CMakeLists.txt.
#pragma once

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // a test program has a listener for Catch2's events
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
