// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdlib>

namespace sharedgpu::programs {

struct CommandLine::Parser {
  explicit Parser(const std::string& description) : app(description) {}
  CLI::App app;
};

namespace {

CLI::Option* real(void* option) { return static_cast<CLI::Option*>(option); }

}  // namespace

CommandLine::CommandLine(const std::string& description) : parser_(std::make_unique<Parser>(description)) {}
CommandLine::~CommandLine() = default;

template <class T>
CommandLine::Option CommandLine::add_option(const std::string& name, T& value, const std::string& help) {
  return Option(parser_->app.add_option(name, value, help)->capture_default_str());
}
template CommandLine::Option CommandLine::add_option(const std::string&, int&, const std::string&);
template CommandLine::Option CommandLine::add_option(const std::string&, unsigned&, const std::string&);
template CommandLine::Option CommandLine::add_option(const std::string&, std::uint64_t&, const std::string&);
template CommandLine::Option CommandLine::add_option(const std::string&, double&, const std::string&);
template CommandLine::Option CommandLine::add_option(const std::string&, std::string&, const std::string&);

void CommandLine::add_flag(const std::string& name, bool& value, const std::string& help) {
  parser_->app.add_flag(name, value, help);
}

void CommandLine::parse(int argc, char** argv) {
  try {
    parser_->app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(parser_->app.exit(error));
  }
}

const CommandLine::Option& CommandLine::Option::positive() const {
  real(option_)->check(CLI::PositiveNumber);
  return *this;
}
const CommandLine::Option& CommandLine::Option::not_negative() const {
  real(option_)->check(CLI::NonNegativeNumber);
  return *this;
}
const CommandLine::Option& CommandLine::Option::between(int least, int most) const {
  real(option_)->check(CLI::Range(least, most));
  return *this;
}
const CommandLine::Option& CommandLine::Option::one_of(const std::vector<std::string>& values) const {
  real(option_)->check(CLI::IsMember(values));
  return *this;
}
const CommandLine::Option& CommandLine::Option::excludes(const Option& other) const {
  real(option_)->excludes(real(other.option_));
  return *this;
}
const CommandLine::Option& CommandLine::Option::hidden() const {
  real(option_)->group("");
  return *this;
}

}  // namespace sharedgpu::programs
