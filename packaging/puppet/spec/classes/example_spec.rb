# frozen_string_literal: true

require 'spec_helper'

# The values of the Hiera example, as an operator would get them.
describe 'proscenium' do
  golden = File.join(__dir__, '../fixtures/example.toml')
  example = YAML.safe_load(File.read(File.join(MODULE, 'examples/proscenium.yaml')))

  let(:params) { { 'settings' => example['proscenium::settings'] } }

  def rendered
    catalogue.resource('file', '/etc/proscenium/proscenium.toml')[:content]
  end

  it 'renders the example as the golden file' do
    File.write(golden, rendered) if ENV['GOLDEN'] == 'write'
    expect(rendered).to eq(File.read(golden))
  end

  it 'loses nothing of the example' do
    expect(read_toml(rendered)).to eq(example['proscenium::settings'])
  end

  everything = File.join(MODULE, '../../crates/config/tests/everything.toml')
  if File.exist?(everything)
    context 'with every key of the configuration' do
      let(:params) { { 'settings' => read_toml(File.read(everything)) } }

      it { expect(read_toml(rendered)).to eq(params['settings']) }
    end
  end
end
