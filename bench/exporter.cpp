// SPDX-License-Identifier: Apache-2.0
// bench_exporter [TENANTS]: measures the CPU time from a status text to the exporter's answer: parsing,
// conversion and Prometheus' text format. Reads a status from standard input (`sharedgpu status --json`), and
// replaces its tenants by TENANTS copies of the first one, with different ids.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "exporter/families.h"
#include "exporter/status.h"
#include "exporter/text_file.h"

int main(int argc, char** argv) {
  const auto milliseconds = [](std::clock_t time) {
    return 1000.0 * static_cast<double>(time) / CLOCKS_PER_SEC;
  };
  const int tenants = argc > 1 ? std::atoi(argv[1]) : 1000;
  auto status = nlohmann::json::parse(std::string(std::istreambuf_iterator<char>(std::cin), {}));
  const nlohmann::json one = status.at("tenants").at(0);
  status["tenants"] = nlohmann::json::array();
  for (int i = 1; i <= tenants; ++i) {
    status["tenants"].push_back(one);
    status["tenants"].back()["id"] = i;
  }
  const std::string text = status.dump();
  std::vector<double> parsing, whole;
  std::size_t size = 0;
  for (int i = 0; i < 50; ++i) {
    const auto begin = std::clock();
    const auto read = sharedgpu::exporter::read_status(text);
    const auto middle = std::clock();
    size = sharedgpu::exporter::text_of(sharedgpu::exporter::families_of(read, [](uid_t) {
             return "ann";
           })).size();
    const auto end = std::clock();
    parsing.push_back(milliseconds(middle - begin));
    whole.push_back(milliseconds(end - begin));
  }
  std::sort(parsing.begin(), parsing.end());
  std::sort(whole.begin(), whole.end());
  std::printf(
      "%d tenants: status %.1f MB, metrics %.1f MB; median %.1f ms (parsing %.1f ms), fastest %.1f ms\n",
      tenants, static_cast<double>(text.size()) / 1e6, static_cast<double>(size) / 1e6, whole[25],
      parsing[25], whole[0]);
}
