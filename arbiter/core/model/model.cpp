// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/model/model.h"

#include <utility>

namespace sharedgpu {
namespace {

template <class Key, class Entity>
Entity* find_in(std::map<Key, Entity>& all, const Key& key) {
  const auto found = all.find(key);
  return found == all.end() ? nullptr : &found->second;
}

// Makes `rules`, the rules of the tenant's domain, stricter if the tenant's deadline restricts the other
// tenants.
void apply_deadlines_of(const Tenant& tenant, Rules& rules) {
  if (rules.by_threads) return;
  const EntitlementRules& entitlement = rules.policy->rules().entitlement;
  rules.all_timed = rules.all_timed || makes_exclusive(entitlement, tenant.stated);
  const Nanoseconds queue = backlog_limit_beside(entitlement, tenant.stated);
  if (queue != Nanoseconds{} && (rules.queue == Nanoseconds{} || queue < rules.queue)) rules.queue = queue;
}

}  // namespace

Slot Model::Slots::take() {
  if (free_.empty()) return next_++;
  const auto smallest = std::min_element(free_.begin(), free_.end());
  const Slot slot = *smallest;
  free_.erase(smallest);
  return slot;
}

Session* Model::find(SessionId id) { return find_in(sessions_, id); }
Tenant* Model::find(TenantId id) { return find_in(tenants_, id); }
Gpu* Model::find(const GpuUuid& uuid) { return find_in(gpus_, uuid); }

std::pair<Session*, bool> Model::add(SessionId id) {
  const auto [entry, is_new] = sessions_.try_emplace(id);
  if (is_new) {
    entry->second.id = id;
    entry->second.slot = session_slots_.take();
  }
  return {&entry->second, !is_new};
}

std::pair<Tenant*, bool> Model::add(TenantId id) {
  const auto [entry, is_new] = tenants_.try_emplace(id);
  if (is_new) {
    entry->second.id = id;
    entry->second.slot = tenant_slots_.take();
  }
  return {&entry->second, !is_new};
}

std::pair<Gpu*, bool> Model::add(const GpuUuid& uuid) {
  const auto [entry, is_new] = gpus_.try_emplace(uuid);
  if (is_new) {
    entry->second.uuid = uuid;
    entry->second.slot = gpu_slots_.take();
  }
  return {&entry->second, !is_new};
}

void Model::join(Tenant& tenant, Session& session) {
  session.tenant = &tenant;
  tenant.sessions.push_back(&session);
}

void Model::attach(Session& session, Gpu& gpu) {
  session.gpu = &gpu;
  const auto by_id = [](const Session* a, const Session* b) { return a->id < b->id; };
  gpu.sessions.insert(std::upper_bound(gpu.sessions.begin(), gpu.sessions.end(), &session, by_id), &session);
  stale_ = true;
}

void Model::remove(Session& session) {
  std::erase(session.tenant->sessions, &session);
  if (Gpu* gpu = session.gpu) {
    std::erase(gpu->sessions, &session);
    if (gpu->learned && gpu->sessions.empty()) {
      gpu_slots_.give_back(gpu->slot);
      gpus_.erase(GpuUuid(gpu->uuid));
    }
  }
  session_slots_.give_back(session.slot);
  sessions_.erase(SessionId(session.id));
  stale_ = true;
}

void Model::remove(Tenant& tenant) {
  tenant_slots_.give_back(tenant.slot);
  tenants_.erase(TenantId(tenant.id));
  stale_ = true;
}

void Model::set_rules(const Rules& node, std::map<GpuUuid, Rules> own) {
  node_ = node;
  own_ = std::move(own);
  stale_ = true;
}

const Rules& Model::rules_of(const GpuUuid& gpu) const {
  const auto own = own_.find(gpu);
  return own == own_.end() ? node_ : own->second;
}

const Rules& Model::rules_of(const Tenant& tenant) const {
  return tenant.domain ? domains_[*tenant.domain].rules : node_;
}

void Model::state(Tenant& tenant, const Limits& limits, const Claims& claims) {
  tenant.limits = limits;
  if (tenant.stated != claims) stale_ = true;
  tenant.stated = claims;
  set_exclusive(tenant);
}

void Model::set_exclusive(Tenant& tenant) const {
  const Rules& rules = rules_of(tenant);
  Claims claims = tenant.stated;
  claims.timed = claims.timed || rules.all_timed;
  if (rules.by_threads) claims.deadline = {};
  tenant.exclusive = is_exclusive(rules.policy->rules().entitlement, claims);
}

// Groups GPUs and tenants that depend on each other into domains. Does not set the domains' rules. Unused
// GPUs are in no group.
std::vector<Domain> Model::group() {
  std::map<const Gpu*, std::size_t> of_gpu;
  std::vector<Domain> all;
  for (auto& [uuid, gpu] : gpus_) {
    of_gpu[&gpu] = all.size();
    all.emplace_back().gpus = {&gpu};
  }
  const auto merge = [&](std::size_t into, std::size_t from) {
    for (Gpu* gpu : all[from].gpus) {
      of_gpu[gpu] = into;
      all[into].gpus.push_back(gpu);
    }
    for (Tenant* tenant : all[from].tenants) all[into].tenants.push_back(tenant);
    all[from] = {};
  };
  for (auto& [id, tenant] : tenants_) {
    std::optional<std::size_t> domain;
    for (const Session* session : tenant.sessions) {
      if (!attached(session)) continue;
      const std::size_t its = of_gpu.at(session->gpu);
      if (domain && *domain != its) merge(*domain, its);
      if (!domain) domain = its;
    }
    if (domain) all[*domain].tenants.push_back(&tenant);
  }
  std::erase_if(all, [](const Domain& domain) { return domain.tenants.empty(); });
  return all;
}

void Model::find_domains() {
  domains_ = group();
  for (auto& [id, tenant] : tenants_) tenant.domain.reset();
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    Domain& domain = domains_[i];
    domain.slot = static_cast<Slot>(i);
    const auto by_number = [](const Gpu* a, const Gpu* b) { return a->number < b->number; };
    const Gpu& first = **std::min_element(domain.gpus.begin(), domain.gpus.end(), by_number);
    domain.rules = rules_of(first.uuid);
    for (Tenant* tenant : domain.tenants) {
      tenant->domain = i;
      apply_deadlines_of(*tenant, domain.rules);
    }
  }
  for (auto& [id, tenant] : tenants_) set_exclusive(tenant);
  stale_ = false;
}

void Model::touch(const Tenant& tenant) {
  if (!stale_ && tenant.domain) domains_[*tenant.domain].due = {};
}

void Model::touch_all() {
  for (Domain& domain : domains_) domain.due = {};
}

}  // namespace sharedgpu
