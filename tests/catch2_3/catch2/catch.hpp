// SPDX-License-Identifier: Apache-2.0
// Stands in for the one header of Catch2 2 where Catch2 3 is installed.
#pragma once

#include <catch2/catch_all.hpp>

namespace Catch {
using TestEventListenerBase = EventListenerBase;
}
using Catch::Approx;
