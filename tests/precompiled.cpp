// SPDX-License-Identifier: Apache-2.0
// CMake builds the precompiled headers of the tests with programs that are never run. This file is the source
// of these programs, and a library has their main().
