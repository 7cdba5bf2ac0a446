// SPDX-License-Identifier: Apache-2.0
// The headers that test programs precompile in every build. Catch2's single header takes most of the time
// that a test takes to compile.
#pragma once

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // a test program listens to Catch2's events
#include <catch2/catch.hpp>

#include "cmake/precompiled.h"
