import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Stream;
import org.opensearch.Version;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.PluginInfo;

/** A node of OpenSearch from its parts; each argument is a setting, as in http.port=9200. */
public final class OpenSearchNode extends Node {
    private static final List<String> MODULES = List.of(
        "org.opensearch.transport.Netty4ModulePlugin",
        "org.opensearch.index.reindex.ReindexModulePlugin",
        "org.opensearch.painless.PainlessModulePlugin",
        "org.opensearch.analysis.common.CommonAnalysisModulePlugin"
    );

    private OpenSearchNode(Environment environment) {
        super(environment, MODULES.stream().map(OpenSearchNode::module).toList(), false);
    }

    private static PluginInfo module(String name) {
        return new PluginInfo(name, name, "NA", Version.CURRENT, "21", name, null, List.of(), false);
    }

    public static void main(String[] arguments) throws Exception {
        Settings.Builder settings = Settings.builder();
        Stream.of(arguments).map(each -> each.split("=", 2)).forEach(each -> settings.put(each[0], each[1]));
        String name = "node";
        Node node = new OpenSearchNode(
            InternalSettingsPreparer.prepareEnvironment(settings.build(), Map.of(), null, () -> name)
        );
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }));
        node.start();
        new CountDownLatch(1).await();
    }
}
