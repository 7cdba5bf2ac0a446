// SPDX-License-Identifier: Apache-2.0
// What the programs of tests precompile, in every build: the library's one header takes most of the time that
// a test takes to compile.
#pragma once

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // one of them listens to events
#include <catch2/catch.hpp>

#include "cmake/precompiled.h"
