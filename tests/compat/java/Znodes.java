import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

/** Writes znodes: the address of ZooKeeper, then path, data, path, data ...; parents are made as needed. */
public class Znodes {
    public static void main(String[] arguments) throws Exception {
        try (ZooKeeper keeper = new ZooKeeper(arguments[0], 10_000, event -> { })) {
            for (int i = 1; i < arguments.length; i += 2) {
                String path = arguments[i];
                for (int slash = path.indexOf('/', 1); slash > 0; slash = path.indexOf('/', slash + 1)) {
                    make(keeper, path.substring(0, slash), null);
                }
                make(keeper, path, arguments[i + 1].getBytes("UTF-8"));
            }
        }
    }

    private static void make(ZooKeeper keeper, String path, byte[] data) throws Exception {
        for (int attempt = 0; ; attempt++) {
            try {
                keeper.create(path, data, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                return;
            } catch (KeeperException.NodeExistsException there) {
                if (data != null) {
                    keeper.setData(path, data, -1);
                }
                return;
            } catch (KeeperException.ConnectionLossException early) {  // it listens before it serves
                if (attempt == 100) {
                    throw early;
                }
                Thread.sleep(100);
            }
        }
    }
}
