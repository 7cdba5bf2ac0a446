// SPDX-License-Identifier: Apache-2.0
#include "exporter/status.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <variant>

namespace sharedgpu::exporter {
namespace {

using Json = nlohmann::json;
using Scalar = std::variant<double, std::uint64_t, std::string_view>;

[[noreturn]] void fail(const std::string& path) {
  throw std::runtime_error(path + " is missing or has the wrong type");
}

void store(const std::string& path, const Scalar& from, Value& to) {
  if (const auto* number = std::get_if<double>(&from))
    to = *number;
  else if (const auto* whole = std::get_if<std::uint64_t>(&from))
    to = static_cast<double>(*whole);
  else
    fail(path);
}

// Accepts whole numbers as texts, too, because they become labels.
void store(const std::string& path, const Scalar& from, std::string& to) {
  if (const auto* text = std::get_if<std::string_view>(&from))
    to = *text;
  else if (const auto* whole = std::get_if<std::uint64_t>(&from))
    to = std::to_string(*whole);
  else
    fail(path);
}

void store(const std::string& path, const Scalar& from, std::vector<std::string>& to) {
  store(path, from, to.emplace_back());
}

using Gpu = Status::Gpu;
using Tenant = Status::Tenant;
using Setter = std::function<void(Status&, const std::string& path, const Scalar&)>;

template <class Member>
Setter of_node(Member Status::*member) {
  return [=](Status& status, const auto& path, const Scalar& value) { store(path, value, status.*member); };
}
template <class Member>
Setter of_gpu(Member Gpu::*member) {
  return [=](Status& status, const auto& path, const Scalar& value) {
    store(path, value, status.gpus.back().*member);
  };
}
template <class Member>
Setter of_tenant(Member Tenant::*member) {
  return [=](Status& status, const auto& path, const Scalar& value) {
    store(path, value, status.tenants.back().*member);
  };
}
template <class Member>
Setter of_energy(Member Status::Energy::*member) {
  return [=](Status& status, const auto& path, const Scalar& value) {
    store(path, value, status.tenants.back().energy.back().*member);
  };
}

// The fields that are read, by their paths.
const std::unordered_map<std::string, Setter>& fields() {
  static const std::unordered_map<std::string, Setter> kFields = {
      {".version", of_node(&Status::version)},
      {".recovering", of_node(&Status::recovering)},
      {".gpus[].number", of_gpu(&Gpu::number)},
      {".gpus[].uuid", of_gpu(&Gpu::uuid)},
      {".gpus[].name", of_gpu(&Gpu::name)},
      {".gpus[].policy", of_gpu(&Gpu::policy)},
      {".gpus[].condition", of_gpu(&Gpu::condition)},
      {".gpus[].total_bytes", of_gpu(&Gpu::total_bytes)},
      {".gpus[].capacity_bytes", of_gpu(&Gpu::capacity_bytes)},
      {".gpus[].usable_bytes", of_gpu(&Gpu::usable_bytes)},
      {".gpus[].footprint_bytes", of_gpu(&Gpu::footprint_bytes)},
      {".gpus[].resident_bytes", of_gpu(&Gpu::resident_bytes)},
      {".gpus[].context_bytes", of_gpu(&Gpu::context_bytes)},
      {".gpus[].host_bytes", of_gpu(&Gpu::host_bytes)},
      {".gpus[].unmanaged_bytes", of_gpu(&Gpu::unmanaged_bytes)},
      {".gpus[].units", of_gpu(&Gpu::units)},
      {".gpus[].utilization", of_gpu(&Gpu::utilization)},
      {".gpus[].energy_joules", of_gpu(&Gpu::energy_joules)},
      {".gpus[].unleased_energy_joules", of_gpu(&Gpu::unleased_energy_joules)},
      {".gpus[].drained", of_gpu(&Gpu::drained)},
      {".gpus[].contended", of_gpu(&Gpu::contended)},
      {".gpus[].quantum_seconds", of_gpu(&Gpu::quantum_seconds)},
      {".gpus[].handoff_seconds", of_gpu(&Gpu::handoff_seconds)},
      {".gpus[].holders[]", of_gpu(&Gpu::holders)},
      {".tenants[].id", of_tenant(&Tenant::id)},
      {".tenants[].name", of_tenant(&Tenant::name)},
      {".tenants[].job", of_tenant(&Tenant::job)},
      {".tenants[].uid", of_tenant(&Tenant::uid)},
      {".tenants[].partition", of_tenant(&Tenant::partition)},
      {".tenants[].qos", of_tenant(&Tenant::qos)},
      {".tenants[].lease_seconds", of_tenant(&Tenant::lease_seconds)},
      {".tenants[].waited_seconds", of_tenant(&Tenant::waited_seconds)},
      {".tenants[].overuse_seconds", of_tenant(&Tenant::overuse_seconds)},
      {".tenants[].handoffs", of_tenant(&Tenant::handoffs)},
      {".tenants[].evicted_bytes", of_tenant(&Tenant::evicted_bytes)},
      {".tenants[].restored_bytes", of_tenant(&Tenant::restored_bytes)},
      {".tenants[].deadline_seconds", of_tenant(&Tenant::deadline_seconds)},
      {".tenants[].deadlines_met", of_tenant(&Tenant::deadlines_met)},
      {".tenants[].deadlines_missed", of_tenant(&Tenant::deadlines_missed)},
      {".tenants[].units", of_tenant(&Tenant::units)},
      {".tenants[].footprint_bytes", of_tenant(&Tenant::footprint_bytes)},
      {".tenants[].resident_bytes", of_tenant(&Tenant::resident_bytes)},
      {".tenants[].host_bytes", of_tenant(&Tenant::host_bytes)},
      {".tenants[].away_bytes", of_tenant(&Tenant::away_bytes)},
      {".tenants[].host_budget_bytes", of_tenant(&Tenant::host_budget_bytes)},
      {".tenants[].lease", of_tenant(&Tenant::lease)},
      {".tenants[].wants", of_tenant(&Tenant::wants)},
      {".tenants[].stuck", of_tenant(&Tenant::stuck)},
      {".tenants[].overdue.seconds", of_tenant(&Tenant::overdue_seconds)},
      {".tenants[].exchanges.evicted_bytes", of_tenant(&Tenant::exchange_evicted_bytes)},
      {".tenants[].exchanges.restored_bytes", of_tenant(&Tenant::exchange_restored_bytes)},
      {".tenants[].exchanges.moving_seconds", of_tenant(&Tenant::exchange_moving_seconds)},
      {".tenants[].exchanges.waited_seconds", of_tenant(&Tenant::exchange_waited_seconds)},
      {".tenants[].exchanges.slowed_seconds", of_tenant(&Tenant::exchange_slowed_seconds)},
      {".tenants[].gpus[]", of_tenant(&Tenant::gpus)},
      {".tenants[].placed[]", of_tenant(&Tenant::placed)},
      {".tenants[].energy[].gpu", of_energy(&Status::Energy::gpu)},
      {".tenants[].energy[].joules", of_energy(&Status::Energy::joules)},
  };
  return kFields;
}

// The objects and lists whose contents are read, by their paths, and the action at the beginning of each.
// Paths of objects end with a dot.
const std::unordered_map<std::string, void (*)(Status&)>& containers() {
  static constexpr auto kNothing = [](Status&) {};
  static const std::unordered_map<std::string, void (*)(Status&)> kContainers = {
      {".", kNothing},
      {".gpus[]", kNothing},
      {".gpus[].", [](Status& status) { status.gpus.emplace_back(); }},
      {".gpus[].holders[]", kNothing},
      {".tenants[]", kNothing},
      {".tenants[].", [](Status& status) { status.tenants.emplace_back(); }},
      {".tenants[].overdue.", kNothing},
      {".tenants[].exchanges.", kNothing},
      {".tenants[].gpus[]", kNothing},
      {".tenants[].placed[]", kNothing},
      {".tenants[].energy[]", kNothing},
      {".tenants[].energy[].", [](Status& status) { status.tenants.back().energy.emplace_back(); }},
  };
  return kContainers;
}

// Receives the parts of the text one after the other.
class Reader final : public Json::json_sax_t {
 public:
  Status take() {
    if (lists_ != 2) fail("the list of gpus or tenants");
    return std::move(status_);
  }

  bool null() override { return true; }
  bool boolean(bool flag) override { return take(flag ? 1.0 : 0.0); }
  bool number_integer(std::int64_t number) override { return take(static_cast<double>(number)); }
  bool number_unsigned(std::uint64_t number) override { return take(number); }
  bool number_float(double number, const std::string& /*text*/) override { return take(number); }
  bool string(std::string& text) override { return take(std::string_view(text)); }
  bool binary(Json::binary_t& /*bytes*/) override { return true; }
  bool key(std::string& name) override {
    if (skipped_ == 0) path_.replace(open_.back().inner, path_.npos, name);
    return true;
  }
  bool start_object(std::size_t /*size*/) override { return enter("."); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t /*size*/) override {
    enter("[]");
    if (skipped_ == 0 && open_.size() == 2) ++lists_;
    return true;
  }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t /*place*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& failure) override {
    throw std::runtime_error(failure.what());
  }

 private:
  // An object or list: the length of its own path, and the length of the common prefix of its contents'
  // paths.
  struct Open {
    std::size_t outer;
    std::size_t inner;
  };

  bool take(const Scalar& value) {
    if (skipped_ > 0) return true;
    if (const auto field = fields().find(path_); field != fields().end())
      field->second(status_, path_, value);
    return true;
  }
  bool enter(const char* suffix) {
    const std::size_t outer = path_.size();
    if (skipped_ == 0) path_ += suffix;
    const auto container = skipped_ == 0 ? containers().find(path_) : containers().end();
    if (container == containers().end()) {
      path_.resize(outer);
      ++skipped_;
      return true;
    }
    container->second(status_);
    open_.push_back({.outer = outer, .inner = path_.size()});
    return true;
  }
  bool leave() {
    if (skipped_ > 0) {
      --skipped_;
      return true;
    }
    path_.resize(open_.back().outer);
    open_.pop_back();
    return true;
  }

  Status status_;
  std::string path_;  // path of the next value, such as ".tenants[].energy[].gpu"
  std::vector<Open> open_;
  unsigned skipped_ = 0;  // number of enclosing objects and lists that are not read
  unsigned lists_ = 0;    // number of lists that were found, out of two: GPUs and tenants
};

}  // namespace

Status read_status(const std::string& text) {
  Reader reader;
  Json::sax_parse(text, &reader);
  return reader.take();
}

}  // namespace sharedgpu::exporter
