// SPDX-License-Identifier: Apache-2.0
// The headers that test programs precompile in every build. Most of a test's compile time is for the single
// header of Catch2.
#pragma once

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // a test program listens to Catch2's events
#include <catch2/catch.hpp>

#include "cmake/precompiled.h"
