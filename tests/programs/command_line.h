// SPDX-License-Identifier: Apache-2.0
// The options of a test program: an interface to CLI11 that compiles fast.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace sharedgpu::programs {

class CommandLine {
 public:
  explicit CommandLine(const std::string& description);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Limits the values of the option that was added last. By default an option accepts all values of its type.
  class Option {
   public:
    explicit Option(void* option) : option_(option) {}
    const Option& positive() const;
    const Option& not_negative() const;
    const Option& between(int least, int most) const;
    const Option& one_of(const std::vector<std::string>& values) const;
    const Option& excludes(const Option& other) const;
    const Option& hidden() const;

   private:
    void* option_;
  };

  // Adds an option. `value` holds the default, and is an integer, a double or a std::string.
  template <class T>
  Option add_option(const std::string& name, T& value, const std::string& help);
  void add_flag(const std::string& name, bool& value, const std::string& help);

  // Exits with CLI11's status if the arguments are wrong, and after --help.
  void parse(int argc, char** argv);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace sharedgpu::programs
