# Known to an agent only after it has fetched its plugins.
Facter.add(:lab_plugin) { setcode { 'synced' } }
