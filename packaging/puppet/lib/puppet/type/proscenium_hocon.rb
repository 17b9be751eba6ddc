# frozen_string_literal: true

Puppet::Type.newtype(:proscenium_hocon) do
  @doc = 'One setting in a file in HOCON, such as auth.conf of Puppet Server. Everything else in the file, comments included,
    stays as it is. The hocon gem does the editing. It is part of every agent, because Facter 4 needs it.'

  newparam(:name, namevar: true) do
    desc 'A unique title.'
  end

  newparam(:path) do
    desc 'Absolute path of the file, which must exist.'
    validate do |value|
      raise ArgumentError, "path must be absolute: #{value}" unless Puppet::Util.absolute_path?(value)
    end
  end

  newparam(:setting) do
    desc 'Path of the setting, such as `authorization.allow-header-cert-info`.'
    validate do |value|
      raise ArgumentError, "invalid setting: #{value}" unless value.match?(/\A[a-z0-9-]+(\.[a-z0-9-]+)*\z/)
    end
  end

  newproperty(:value, boolean: true) do
    desc 'Its value: true or false.'
    newvalues(:true, :false)
  end

  validate do
    %i[path setting value].each { |name| raise ArgumentError, "#{name} is required" if self[name].nil? }
  end

  autorequire(:file) { [self[:path]] }
  autorequire(:package) { ['puppetserver'] }
end
