// SPDX-License-Identifier: Apache-2.0
// The simulations whose decisions are recorded in decisions.golden. The number of a simulation determines its
// scenario.
//
// A group consists of kPerGroup consecutive scenarios with one policy and one theme. The theme decides what
// happens in them, for example deaths of processes. Consecutive groups differ in policy and theme: any 13
// consecutive groups together have every policy and every theme.
#pragma once

#include <string>

#include "world.h"

namespace sharedgpu::test {

constexpr unsigned kGroups = 800;
constexpr unsigned kPerGroup = 25;

std::string name_of_group(unsigned group);  // POLICY/THEME
Scenario scenario_of(unsigned number);      // below kGroups * kPerGroup

}  // namespace sharedgpu::test
